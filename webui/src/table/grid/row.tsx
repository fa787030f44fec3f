// One line of the table: a run, its place while it is on its way, or the name of a group.
import type { MouseEvent } from "react";
import { memo } from "react";
import { toNumber } from "../../format";
import { Icon } from "../../parts";
import { tint } from "../rows/heat";
import type { Column, Kind, Range, TableRow } from "../types";
import type { Placed } from "../view/columns";
import { Name, Spark, Value, full, isRight } from "./cell";

/** What all rows share; the same object as long as nothing of it changed. */
export interface Shared {
  kind: Kind;
  /** The columns in sight, the first of all included. */
  columns: readonly Placed[];
  width: number;
  height: number;
  cells: ReadonlyMap<string, number>;
  ranges: Record<string, Range>;
  best: Record<string, number>;
  isHot: (column: Column) => boolean;
}

interface RowProps {
  shared: Shared;
  row: TableRow | undefined;
  line: number;
  offset: number;
  isSelected: boolean;
  isCursor: boolean;
  spark: readonly (number | null)[] | undefined;
  /** The colour that it has in the comparison below. */
  mark: string | undefined;
  onCheck: (row: TableRow, offset: number, isRange: boolean) => void;
  onPoint: (offset: number) => void;
}

export const checkWidth = 36;

function heat(shared: Shared, column: Column, value: unknown): string | undefined {
  const number = column.type === "number" && shared.isHot(column) ? toNumber(value as number | string | null) : undefined;
  return number === undefined ? undefined : tint(number, shared.ranges[column.key]);
}

function Cell({ shared, row, at, spark }: { shared: Shared; row: TableRow; at: Placed; spark: RowProps["spark"] }) {
  const { column, width, left, place } = at;
  const value = row.cells[shared.cells.get(column.key) ?? -1];
  const isFirst = place === 0;
  const names = ["cell", isFirst ? "first" : "", isRight(column) ? "num right" : "", shared.best[column.key] === row.id ? "best" : ""];
  const background = heat(shared, column, value);
  return (
    <div
      role="gridcell"
      aria-colindex={place + 2}
      className={names.filter(Boolean).join(" ")}
      title={full(column, value)}
      style={{ width, ...(isFirst ? {} : { left }), ...(background ? { backgroundImage: `linear-gradient(${background}, ${background})` } : {}) }}
    >
      {isFirst ? (
        <Name kind={shared.kind} row={row} value={value} column={column} />
      ) : column.key === "spark" ? (
        <Spark values={spark} />
      ) : (
        <Value column={column} value={value} row={row} />
      )}
    </div>
  );
}

export const Row = memo(function Row({ shared, row, line, offset, isSelected, isCursor, spark, mark, onCheck, onPoint }: RowProps) {
  const { columns, width, height } = shared;
  const check = (event: MouseEvent<HTMLInputElement>) => row && onCheck(row, offset, event.shiftKey);
  return (
    <div
      role="row"
      id={`line-${line}`}
      aria-rowindex={line + 2}
      aria-selected={isSelected}
      aria-busy={row === undefined || undefined}
      className={isCursor ? "line cursor" : "line"}
      style={{ width, height, transform: `translateY(${line * height}px)` }}
      onMouseDown={() => onPoint(offset)}
    >
      <div role="gridcell" aria-colindex={1} className="cell check">
        <input
          type="checkbox"
          tabIndex={-1}
          checked={isSelected}
          disabled={!row}
          aria-label={row ? `Select ${shared.kind === "trials" ? "trial" : "experiment"} ${row.id}` : "Loading"}
          readOnly
          onClick={check}
        />
        {mark && <i className="row-mark" style={{ background: mark }} />}
      </div>
      {row ? (
        columns.map((at) => <Cell key={at.column.key} shared={shared} row={row} at={at} spark={spark} />)
      ) : (
        <div role="gridcell" aria-colindex={2} className="cell first" style={{ width: columns[0]?.width ?? 200 }}>
          <span className="skeleton grow" />
        </div>
      )}
    </div>
  );
});

interface GroupRowProps {
  value: string;
  count: number;
  isFolded: boolean;
  line: number;
  shared: Shared;
  title: string;
  onFold: (value: string) => void;
}

export function GroupRow({ value, count, isFolded, line, shared, title, onFold }: GroupRowProps) {
  return (
    <div
      role="row"
      id={`line-${line}`}
      aria-rowindex={line + 2}
      className="line group"
      style={{ width: shared.width, height: shared.height, transform: `translateY(${line * shared.height}px)` }}
    >
      <div role="gridcell" aria-colindex={1} className="cell group-name">
        <button type="button" className="plain" aria-expanded={!isFolded} onClick={() => onFold(value)}>
          <Icon name={isFolded ? "right" : "down"} size={14} />
          <span className="muted">{title}</span>
          <span className="clip">{value === "" ? "none" : value}</span>
          <span className="muted num">{count.toLocaleString("en-US")}</span>
        </button>
      </div>
    </div>
  );
}
