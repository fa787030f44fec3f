// What is around every chart: its title, its legend, and what can be done with it (full screen, PNG, CSV, link, table).
import type { ReactNode } from "react";
import { useEffect, useRef, useState } from "react";
import type { Item } from "../../parts";
import { Menu, copyText, toast, toastError } from "../../parts";
import { Icon } from "../../parts/icons";
import { useQueryState } from "../../route";
import { withValue } from "../../route/query";
import { useColors } from "./palette";
import type { Swatch } from "./save";
import { saveCsv, savePng } from "./save";
import "./shell.css";

/** As `empty`, while the first answer is on its way. */
export const loading = "Loading …";

interface ChartShellProps {
  /** Names the chart in links; unique on its page. */
  id: string;
  title: string;
  children: ReactNode;
  legend?: ReactNode;
  /** Below, at the left: "showing 1,000 of 1,000,000 points". */
  note?: string;
  /** Below, at the right: the unit of the x axis. */
  unit?: ReactNode;
  /** Why there is nothing to see; shown in the place of the chart. */
  empty?: string | undefined;
  /** For the legend of a picture. */
  swatches?: readonly Swatch[];
  canvas?: () => HTMLCanvasElement | undefined;
  csv?: () => string;
  /** An address that gives all points as CSV, instead of those that are shown. */
  csvFrom?: string;
  /** The same as numbers. */
  table?: () => ReactNode;
  height?: number | undefined;
}

/** The chart of this page that fills the window is part of the address. */
function useFull(id: string): [boolean, (isFull: boolean) => void] {
  const [full, setFull] = useQueryState("chart", "");
  const isFull = full === id;
  useEffect(() => {
    if (!isFull) return undefined;
    const leave = (event: KeyboardEvent) => event.key === "Escape" && !event.defaultPrevented && setFull("");
    document.addEventListener("keydown", leave);
    document.documentElement.classList.add("has-full-chart");
    return () => {
      document.removeEventListener("keydown", leave);
      document.documentElement.classList.remove("has-full-chart");
    };
  }, [isFull]);
  return [isFull, (next) => setFull(next ? id : "")];
}

async function copyLink(id: string): Promise<void> {
  const { origin, pathname, search } = window.location;
  const address = origin + pathname + withValue(search, "chart", id);
  if (await copyText(address)) toast("The link to this chart is copied.");
  else toastError(new Error(`The browser refused to copy. The link is ${address}`));
}

export function ChartShell(props: ChartShellProps) {
  const { id, title, children, legend, note = "", unit, empty, swatches = [], canvas, csv, csvFrom, table, height } = props;
  const [isFull, setFull] = useFull(id);
  const [isTable, setTable] = useState(false);
  const colors = useColors();
  const box = useRef<HTMLElement>(null);
  const isShown = isTable && table !== undefined && !empty;
  const items: Item[] = [];
  const png = () => {
    const found = canvas?.();
    if (found) savePng(found, { title, swatches, note, colors });
  };
  if (canvas) items.push({ label: "Save picture (PNG)", onSelect: png, disabled: empty ? "There is nothing to draw." : undefined });
  if (csvFrom) items.push({ label: "Save all points (CSV)", onSelect: () => window.location.assign(csvFrom) });
  if (csv) items.push({ label: csvFrom ? "Save what is shown (CSV)" : "Save numbers (CSV)", onSelect: () => saveCsv(title, csv()) });
  items.push({ label: "Copy link", onSelect: () => void copyLink(id) });
  if (table) items.push({ label: isTable ? "Show as chart" : "Show as table", onSelect: () => setTable(!isTable) });
  return (
    <figure ref={box} className={isFull ? "chart full" : "chart"} style={{ "--chart-height": `${height ?? 260}px` } as React.CSSProperties} data-chart={id}>
      <figcaption className="chart-head">
        <h3 className="clip" title={title}>
          {title}
        </h3>
        <div className="chart-legend">{legend}</div>
        <div className="chart-tools">
          <button type="button" className="plain" onClick={() => setFull(!isFull)} aria-label={isFull ? `Leave full screen of ${title}` : `Show ${title} in full screen`} title={isFull ? "Leave full screen (Esc)" : "Full screen"}>
            <Icon name={isFull ? "close" : "expand"} size={14} />
          </button>
          <Menu label={<Icon name="more" size={14} />} name={`Save or link ${title}`} items={items} align="right" className="plain" />
        </div>
      </figcaption>
      <div className="chart-body">
        {empty ? (
          <p className={empty === loading ? "chart-empty is-loading muted" : "chart-empty muted"}>{empty}</p>
        ) : (
          // Out of sight, not gone: a chart that is made anew forgets its cross-hair and takes a moment.
          <div className={isShown ? "chart-plot out" : "chart-plot"}>{children}</div>
        )}
        {isShown && <div className="chart-table">{table()}</div>}
      </div>
      {(note || unit) && (
        <div className="chart-foot muted num">
          <span className="clip">{note}</span>
          <span>{unit}</span>
        </div>
      )}
    </figure>
  );
}
