// Curves over batches, epochs or time: a faint raw line under a smoothed one, a band of extremes, shared cross-hair and zoom.
import type { KeyboardEvent } from "react";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { ChartShell } from "../shell/ChartShell";
import { useColors } from "../shell/palette";
import type { Amount } from "../logic/amounts";
import { amounts } from "../logic/amounts";
import { linesCsv } from "../logic/csv";
import type { Line, Place } from "../logic/lines";
import { extentY } from "../logic/lines";
import type { Span } from "../logic/ticks";
import type { Row } from "./hover";
import { Legend } from "./Legend";
import "./line.css";
import type { Hover, View } from "./plot";
import { LinePlot } from "./plot";
import { LinesTable, pointsNote, summary, units } from "./summary";
import { useCrossHair } from "./together";
import { Tooltip, placeText } from "./Tooltip";

export interface Pick {
  trialId: number;
  step: number | undefined;
  /** Since the trial began. */
  seconds: number | undefined;
}

export interface LineChartProps {
  /** Names the chart in links; unique on its page. */
  id: string;
  title: string;
  lines: readonly Line[];
  place?: Place;
  smoothing?: number;
  isLog?: boolean;
  /** A span of x, shared by the charts of a page; undefined shows everything. */
  zoom?: Span | undefined;
  onZoom?: (span: Span | undefined) => void;
  /** The trial that stands out, here and wherever else it is shown. */
  lit?: number | undefined;
  onLight?: (trialId: number | undefined) => void;
  /** What can be done with a point: a click holds the tooltip, which then has a button of this name. */
  pick?: { label: string; onPick: (pick: Pick) => void };
  /** Why there is nothing to see. */
  empty?: string;
  height?: number;
  csvFrom?: string;
  /** What the values are; plain numbers by default. */
  amount?: Amount;
  /** With more lines than this there is no legend: the tooltip and a table beside say which is which. */
  mostNamed?: number;
  note?: string;
}

const noEmpty = "Nothing has been reported yet.";

/** The plot itself, without what is around it. */
function usePlot(view: View, props: LineChartProps, isShown: boolean) {
  const host = useRef<HTMLDivElement>(null);
  const plot = useRef<LinePlot>(undefined);
  const latest = useRef(props);
  latest.current = props;
  const [hover, setHover] = useState<Hover>();
  const [held, setHeld] = useState<Hover>();
  const [followed, setFollowed] = useState<Row[]>();
  const hair = useCrossHair();
  const multi = useRef(false);
  multi.current = new Set(view.lines.map((line) => line.trialId)).size > 1;

  useEffect(() => {
    const element = host.current;
    if (!element || !isShown) return undefined;
    const light = (found: Hover | undefined) => multi.current && latest.current.onLight?.(found?.near?.line.trialId);
    const made = new LinePlot(element, { width: element.clientWidth, height: element.clientHeight }, view, {
      onHover: (found) => {
        setHover(found);
        setFollowed(undefined);
        light(found);
        hair?.move(found?.x, made);
      },
      onZoom: (span) => {
        setHeld(undefined);
        latest.current.onZoom?.(span);
      },
      onPick: (found) => setHeld(latest.current.pick && found.rows.length ? found : undefined),
    });
    plot.current = made;
    const deaf = hair?.hear((x, source) => {
      if (source === made) return;
      made.follow(x);
      setFollowed(x === undefined ? undefined : made.at(x));
    });
    const watcher = new ResizeObserver(() => made.resize(element.clientWidth, element.clientHeight));
    watcher.observe(element);
    return () => {
      watcher.disconnect();
      deaf?.();
      made.destroy();
      plot.current = undefined;
      setHover(undefined);
      setHeld(undefined);
    };
    // A linear and a logarithmic scale are two plots; everything else is replaced in place.
  }, [view.isLog, isShown, hair]);

  useEffect(() => plot.current?.update(view), [view]);
  return { host, plot, hover, held, release: () => setHeld(undefined), followed };
}

function whyEmpty(lines: readonly Line[], isLog: boolean, said: string): string | undefined {
  if (!lines.some((line) => line.xs.length || line.odd.length)) return said;
  if (isLog && !extentY(lines, [-Infinity, Infinity], true)) return "No value is above zero, so a logarithmic axis shows none. Switch it off to see them.";
  return undefined;
}

export function LineChart(props: LineChartProps) {
  const { id, title, lines, place = "batch", smoothing = 0, isLog = false, zoom, lit, mostNamed = 6, amount = amounts.plain } = props;
  const colors = useColors();
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [own, setOwn] = useState<number>();
  const shown = useMemo(() => lines.filter((line) => !hidden.has(line.id)), [lines, hidden]);
  const empty = whyEmpty(lines, isLog, props.empty ?? noEmpty);
  const outer = props.onLight;
  const onLight = useCallback((trial: number | undefined) => (setOwn(trial), outer?.(trial)), [outer]);
  const stands = lit ?? own;
  const view = useMemo<View>(
    () => ({ lines: shown, place, smoothing, isLog, zoom, lit: stands, palette: { ...colors, font: "" }, amount }),
    [shown, place, smoothing, isLog, zoom, stands, colors, amount],
  );
  const { host, plot, hover, held, release, followed } = usePlot(view, { ...props, onLight }, !empty);
  const [spoken, setSpoken] = useState("");
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) {
      event.preventDefault();
      plot.current?.step(step);
    } else if (event.key === "Enter") {
      plot.current?.hold();
    } else if (event.key === "Escape" && zoom) {
      event.preventDefault();
      props.onZoom?.(undefined);
    }
    setSpoken(step ? "follow" : "");
  };
  const toggle = (line: string) => setHidden((now) => new Set(now.has(line) ? [...now].filter((one) => one !== line) : [...now, line]));
  return (
    <ChartShell
      id={id}
      title={title}
      height={props.height}
      empty={empty}
      legend={lines.length <= mostNamed && !empty && <Legend lines={lines} hidden={hidden} onToggle={toggle} rows={hover?.rows ?? followed} text={amount.text} />}
      note={empty ? "" : [pointsNote(shown), props.note].filter(Boolean).join(" · ")}
      unit={!empty && units[place]}
      swatches={shown.filter((line) => !line.isFaint).slice(0, 24)}
      canvas={() => plot.current?.canvas}
      csv={() => linesCsv(shown, units[place])}
      {...(props.csvFrom ? { csvFrom: props.csvFrom } : {})}
      table={() => <LinesTable lines={lines} place={place} />}
    >
      <div className="line-plot" ref={host} role="img" tabIndex={0} aria-label={summary(title, shown, place)} onKeyDown={keys} onBlur={() => setSpoken("")} />
      {(held ?? hover) && <Tooltip hover={(held ?? hover) as Hover} place={place} text={amount.text} pick={held && props.pick} onRelease={release} />}
      <output className="visually-hidden">
        {spoken && hover ? `${placeText(hover.x, place)}: ${hover.rows.slice(0, 5).map((row) => `${row.line.name} ${row.value ?? row.odd ?? "no value"}`).join(", ")}` : ""}
      </output>
    </ChartShell>
  );
}
