// Tables as CSV, with the full value of each number.
import type { Line } from "./lines";

export type Cell = string | number | boolean | null | undefined;

/** A leading =, +, - or @ would run as a formula in a spreadsheet: such text gets an apostrophe. */
function cell(value: Cell): string {
  if (value === null || value === undefined) return "";
  const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function toCsv(head: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

/** What a chart shows, one row per point; along batches there is no other place to tell. */
export function linesCsv(lines: readonly Line[], place: string): string {
  const isElsewhere = place !== "batches";
  const own = (x: number): Cell[] => (isElsewhere ? [x] : []);
  const rows = lines.flatMap((line) => {
    const points: [number, Cell[]][] = line.xs.map((x, at) => [
      x,
      [line.trialId, line.name, line.steps[at], ...own(x), line.ys[at], line.lows?.[at], line.highs?.[at]],
    ]);
    const odd: [number, Cell[]][] = line.odd.map(({ x, value }) => [x, [line.trialId, line.name, isElsewhere ? undefined : x, ...own(x), value, undefined, undefined]]);
    return [...points, ...odd].sort((one, other) => one[0] - other[0]).map(([, row]) => row);
  });
  return toCsv(["trial", "series", "batches", ...(isElsewhere ? [place] : []), "value", "min", "max"], rows);
}
