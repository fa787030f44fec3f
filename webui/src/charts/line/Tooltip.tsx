// The values under the cross-hair: the highest first, the line nearest to the mouse marked.
import { useEffect, useRef } from "react";
import { count, duration, short } from "../../format";
import type { Place } from "../logic/lines";
import { Swatch } from "../shell/Swatch";
import type { Row } from "./hover";
import { around } from "./hover";
import type { LineChartProps } from "./LineChart";
import type { Hover } from "./plot";

const most = 12;

export function placeText(x: number, place: Place): string {
  if (place === "time") return `${duration(x)} after the start`;
  return place === "batch" ? `batch ${count(Math.round(x))}` : `epoch ${short(x)}`;
}

function Value({ row, text }: { row: Row; text: (value: number) => string }) {
  const value = row.smoothed ?? row.value;
  return <td className="num">{value === null || value === undefined ? (row.odd ?? "no value") : text(value)}</td>;
}

/** What else is known of the point: raw value, extremes, NaN, the best checkpoint. */
export function detail(row: Row, text: (value: number) => string = short): string {
  const parts: string[] = [];
  if (row.smoothed !== undefined && row.value !== null) parts.push(`raw ${text(row.value)}`);
  if (row.low != null && row.high != null && row.low !== row.high) parts.push(`${text(row.low)} to ${text(row.high)}`);
  if (row.odd && row.value !== null) parts.push(`${row.odd} reported`);
  if (row.isBest) parts.push("best checkpoint");
  return parts.join(" · ");
}

interface TooltipProps {
  hover: Hover;
  place: Place;
  text: (value: number) => string;
  /** Set while the tooltip is held: what its button does. */
  pick: LineChartProps["pick"] | undefined;
  onRelease: () => void;
}

/** A tooltip that is held goes with Esc and with a press elsewhere. */
function useRelease(isHeld: boolean, onRelease: () => void) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!isHeld) return undefined;
    box.current?.querySelector("button")?.focus();
    const away = (event: PointerEvent) => !box.current?.contains(event.target as Node) && onRelease();
    const keys = (event: KeyboardEvent) => {
      if (event.key !== "Escape") return;
      event.preventDefault();
      onRelease();
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("keydown", keys, true);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("keydown", keys, true);
    };
  }, [isHeld]);
  return box;
}

export function Tooltip({ hover, place, text, pick, onRelease }: TooltipProps) {
  const box = useRelease(pick !== undefined, onRelease);
  const shown = around(hover.rows, hover.near?.line.trialId, most);
  if (!shown.length) return null;
  const away = (one: Row) => Math.abs(one.x - hover.x);
  const row = hover.near ?? shown.reduce((one, other) => (away(other) < away(one) ? other : one), shown[0] as Row);
  const x = row?.x ?? hover.x;
  const isLeft = hover.left > hover.width / 2;
  const across = isLeft ? { right: hover.width - hover.left + 14 } : { left: hover.left + 14 };
  const rest = hover.rows.length - shown.length;
  return (
    <div ref={box} className={pick ? "chart-tip held" : "chart-tip"} style={{ ...across, top: Math.max(0, Math.min(hover.top - 20, 90)) }}>
      <div className="muted num">{placeText(x, place)}</div>
      <table>
        <tbody>
          {shown.map((row) => (
            <tr key={row.line.id} className={row === hover.near && hover.rows.length > 1 ? "is-near" : ""}>
              <td>
                <Swatch color={row.line.color} dash={row.line.dash} />
              </td>
              <td className="name clip">{row.line.name}</td>
              <Value row={row} text={text} />
              <td className="muted num">{detail(row, text)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {rest > 0 && <div className="muted">and {rest} more</div>}
      {pick && row && (
        <button type="button" onClick={() => pick.onPick({ trialId: row.line.trialId, step: row.step, seconds: row.seconds })}>
          {pick.label}
        </button>
      )}
    </div>
  );
}
