// How each hyperparameter is searched: a row each, constants first seen as such.
import { asText } from "../../pages/shared/JsonValue";
import type { FormProps } from "./Budget";
import type { Kind, Row } from "./form";
import { asKind, needs } from "./form";

const kinds: [Kind, string][] = [
  ["const", "constant"],
  ["double", "range"],
  ["log", "log range"],
  ["int", "whole numbers"],
  ["categorical", "values"],
];

export function Ranges({ form, problems, onChange }: FormProps) {
  const replace = (row: Row) => onChange({ ...form, rows: form.rows.map((one) => (one.name === row.name ? row : one)) });
  return (
    <div className="search-ranges">
      {problems.rows && <p className="muted">{problems.rows}</p>}
      {form.rows.map((row) => (
        <RangeRow key={row.name} row={row} hasCount={needs.count(form.searcher)} problems={problems} onChange={replace} />
      ))}
    </div>
  );
}

interface RangeRowProps {
  row: Row;
  hasCount: boolean;
  problems: Record<string, string>;
  onChange: (row: Row) => void;
}

function RangeRow({ row, hasCount, problems, onChange }: RangeRowProps) {
  const input = (key: "min" | "max" | "base" | "count" | "values", label: string) => {
    const problem = problems[`${row.name}.${key}`];
    return (
      <label className={key === "values" ? "range-field wide" : "range-field"} title={problem}>
        <span className="muted">{label}</span>
        <input value={row[key]} aria-label={`${row.name}: ${label}`} aria-invalid={Boolean(problem)} onChange={(event) => onChange({ ...row, [key]: event.target.value })} />
      </label>
    );
  };
  const wrong = Object.entries(problems).filter(([field]) => ["min", "max", "base", "count", "values"].some((end) => field === `${row.name}.${end}`));
  return (
    <div className="search-range" role="group" aria-label={row.name}>
      <span className="clip mono" title={row.name}>
        {row.name}
      </span>
      <select aria-label={`${row.name}: kind`} value={row.kind} onChange={(event) => onChange(asKind(row, event.target.value as Kind))}>
        {kinds.map(([key, label]) => (
          <option key={key} value={key}>
            {label}
          </option>
        ))}
      </select>
      <div className="range-fields">
        {row.kind === "const" && (
          <span className="clip mono muted" title={asText(row.value)}>
            {asText(row.value).slice(0, 200)}
          </span>
        )}
        {row.kind === "categorical" && input("values", "values")}
        {row.kind === "log" && input("base", "base")}
        {(row.kind === "int" || row.kind === "double" || row.kind === "log") && (
          <>
            {input("min", row.kind === "log" ? "exponent from" : "from")}
            {input("max", "to")}
            {hasCount && input("count", "points")}
          </>
        )}
      </div>
      {wrong.length > 0 && <small className="field-bad">{[...new Set(wrong.map(([, said]) => said))].join(" ")}</small>}
    </div>
  );
}
