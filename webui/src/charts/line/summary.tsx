// A chart in words and as a table, for those who cannot see it or want numbers.
import { count, duration, plural, short } from "../../format";
import { Num } from "../../parts";
import type { Line, Place } from "../logic/lines";
import { extentX } from "../logic/lines";

export const units: Record<Place, string> = { batch: "batches", epoch: "epochs", time: "time since the start" };

const reach = (x: number, place: Place): string => (place === "time" ? duration(x) : count(Math.round(x)));

function numbers(line: Line): number[] {
  return line.ys.filter((value): value is number => value !== null);
}

export function summary(title: string, lines: readonly Line[], place: Place): string {
  const span = extentX(lines);
  if (!span) return `${title}: no points`;
  const ends = lines.slice(0, 5).flatMap((line) => {
    const last = numbers(line).at(-1);
    return last === undefined ? [] : [`${line.name} ends at ${short(last)}`];
  });
  const odd = lines.reduce((sum, line) => sum + line.odd.length, 0);
  const strange = odd ? `; ${plural(odd, "point")} not finite` : "";
  const to = place === "time" ? `up to ${duration(span[1])}` : `up to ${reach(span[1], place)} ${units[place]}`;
  return `${title}, ${plural(lines.length, "line")} ${to}: ${ends.join(", ")}${lines.length > 5 ? ", and others" : ""}${strange}`;
}

/** "showing 1,000 of 1,000,000 points"; nothing if all are shown. */
export function pointsNote(lines: readonly Line[]): string {
  const shown = lines.reduce((sum, line) => sum + line.shown, 0);
  const total = lines.reduce((sum, line) => sum + line.total, 0);
  return shown < total ? `showing ${count(shown)} of ${count(total)} points` : "";
}

export function LinesTable({ lines, place }: { lines: readonly Line[]; place: Place }) {
  return (
    <table>
      <thead>
        <tr>
          <th>Series</th>
          <th className="num">Last</th>
          <th className="num">Lowest</th>
          <th className="num">Highest</th>
          <th className="num">Points</th>
          <th className="num">Up to ({units[place]})</th>
        </tr>
      </thead>
      <tbody>
        {lines.map((line) => {
          const values = numbers(line);
          const low = [...(line.lows ?? []), ...values].filter((value): value is number => value !== null);
          const high = [...(line.highs ?? []), ...values].filter((value): value is number => value !== null);
          return (
            <tr key={line.id}>
              <td>{line.name}</td>
              <td className="num">
                <Num value={values.at(-1)} />
              </td>
              <td className="num">
                <Num value={low.length ? low.reduce((one, other) => Math.min(one, other)) : undefined} />
              </td>
              <td className="num">
                <Num value={high.length ? high.reduce((one, other) => Math.max(one, other)) : undefined} />
              </td>
              <td className="num">{count(line.total)}</td>
              <td className="num">{reach(line.xs.at(-1) ?? 0, place)}</td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
