// Names and colours of few lines; pressing one hides its line. Their values follow the cross-hair.
import type { Line } from "../logic/lines";
import { Swatch } from "../shell/Swatch";
import type { Row } from "./hover";

interface LegendProps {
  lines: readonly Line[];
  hidden: ReadonlySet<string>;
  onToggle: (id: string) => void;
  /** Values at the cross-hair, here or in another chart. */
  rows: readonly Row[] | undefined;
  text: (value: number) => string;
}

function shownValue(line: Line, rows: readonly Row[] | undefined, text: (value: number) => string): string {
  const row = rows?.find((one) => one.line.id === line.id);
  const value = row ? (row.smoothed ?? row.value) : rows ? null : line.ys.findLast((one) => one !== null);
  return value === null || value === undefined ? (row?.odd ?? "") : text(value);
}

export function Legend({ lines, hidden, onToggle, rows, text }: LegendProps) {
  return lines.map((line) => (
    <button key={line.id} type="button" className="legend-item" aria-pressed={!hidden.has(line.id)} title={`Show or hide ${line.name}`} onClick={() => onToggle(line.id)}>
      <Swatch color={line.color} dash={line.dash} />
      <span className="clip">{line.name}</span>
      <b className="num">{shownValue(line, rows, text)}</b>
    </button>
  ));
}
