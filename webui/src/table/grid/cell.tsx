// One value of one run, as its type reads best.
import { Sparkline } from "../../charts";
import { exact, listed, percent, short, toNumber } from "../../format";
import { Bytes, Chip, Duration, Progress, State, Time, isOver } from "../../parts";
import { Link } from "../../route";
import type { Column, Kind, TableRow } from "../types";

const right: ReadonlySet<Column["type"]> = new Set(["number", "duration", "bytes"]);
/** Whether a column's values stand at the right, under each other digit by digit. */
export const isRight = ({ type, key }: Column): boolean => right.has(type) && key !== "run.progress" && key !== "run.id";

/** The page of a row. */
export const pageOf = (kind: Kind, row: Pick<TableRow, "id">): string => `/${kind}/${row.id}`;

const isName = ({ key }: Column): boolean => /^run\.(id|experiment_id|seed)$/.test(key);

function plainText(value: unknown): string {
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return listed(value.map(String));
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** What hovering shows: the whole value. Times, sizes and durations have their own. */
export function full(column: Column, value: unknown): string | undefined {
  if (value === null || value === undefined || column.type === "time" || column.type === "bytes") return undefined;
  if (column.type === "number" || column.type === "duration") {
    const number = toNumber(value as number | string);
    return number === undefined ? plainText(value) : `${exact(number)}${column.type === "duration" ? " s" : ""}`;
  }
  return plainText(value);
}

export function Value({ column, value, row }: { column: Column; value: unknown; row: TableRow }) {
  if (value === null || value === undefined || value === "") return <span className="muted">–</span>;
  if (column.key === "run.name") return <Link to={`/experiments/${row.experiment_id}`} tabIndex={-1}>{plainText(value)}</Link>;
  if (column.key === "run.parent_id") return <Link to={`/experiments/${Number(value)}`} tabIndex={-1}>#{Number(value)}</Link>;
  if (column.key === "run.progress") {
    // A bar for what still moves; of what has ended the number says enough.
    const share = toNumber(value as number) ?? 0;
    return isOver(row.state) ? <span className="num">{percent(share)}</span> : <Progress share={share} state={row.state} />;
  }
  switch (column.type) {
    case "number": {
      const number = toNumber(value as number | string);
      // Numbers of things are names, not amounts: no groups of digits.
      if (isName(column)) return String(value);
      return number === undefined ? plainText(value) : short(number);
    }
    case "time":
      return <Time at={String(value)} />;
    case "duration":
      return <Duration seconds={Number(value)} />;
    case "bytes":
      return <Bytes size={Number(value)} />;
    case "state":
      return <State state={String(value)} />;
    case "labels":
      return Array.isArray(value) && value.length ? value.map((label) => <Chip key={String(label)}>{String(label)}</Chip>) : <span className="muted">–</span>;
    default:
      return plainText(value);
  }
}

/** The first cell leads to the run; a run without a name leads there by its number. */
export function Name({ kind, row, value, column }: { kind: Kind; row: TableRow; value: unknown; column: Column }) {
  const text = value === null || value === undefined || value === "" ? `#${row.id}` : column.key === "run.id" ? `#${String(value)}` : plainText(value);
  return (
    <>
      <Link to={pageOf(kind, row)} className="clip" tabIndex={-1}>
        {text}
      </Link>
      {row.archived && <span className="muted tag">archived</span>}
    </>
  );
}

export function Spark({ values }: { values: readonly (number | null)[] | undefined }) {
  return values && values.length > 1 ? <Sparkline values={values} name="searcher metric" /> : null;
}
