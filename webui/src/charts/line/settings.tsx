// How the charts of a page are shown, kept in its address; and the controls that change it.
import { useCallback, useMemo } from "react";
import { codecs, setQuery, useQueryState } from "../../route";
import type { Place } from "../logic/lines";
import type { Span } from "../logic/ticks";

export interface ChartSettings {
  place: Place;
  smoothing: number;
  isLog: boolean;
  zoom: Span | undefined;
  setPlace: (place: Place) => void;
  setSmoothing: (weight: number) => void;
  setLog: (isLog: boolean) => void;
  setZoom: (zoom: Span | undefined) => void;
}

const places = codecs.oneOf<Place>("batch", "epoch", "time");

const zooms: codecs.Codec<string> = {
  parse: (text) => (/^-?[\d.e+-]+,-?[\d.e+-]+$/.test(text) ? text : undefined),
  format: (text) => text,
};

export function parseZoom(text: string): Span | undefined {
  const [from, to] = text.split(",").map(Number);
  return from !== undefined && to !== undefined && from < to ? [from, to] : undefined;
}

/** Enough digits to be where it was, few enough to read. */
export const formatZoom = ([from, to]: Span): string => [from, to].map((x) => String(Number(x.toPrecision(7)))).join(",");

export function useChartSettings(): ChartSettings {
  const [place] = useQueryState<Place>("x", "batch", places);
  const [smoothing, setSmoothing] = useQueryState("smooth", 0, codecs.number);
  const [isLog, setLog] = useQueryState("log", false, codecs.flag);
  const [text, setText] = useQueryState("zoom", "", zooms);
  const zoom = useMemo(() => parseZoom(text), [text]);
  // Another x axis has other numbers, so that a zoom means nothing there.
  const setPlace = useCallback((next: Place) => setQuery({ x: next === "batch" ? undefined : next, zoom: undefined }), []);
  const setZoom = useCallback((next: Span | undefined) => setText(next ? formatZoom(next) : "", { push: true }), [setText]);
  return { place, smoothing: Math.max(0, Math.min(0.99, smoothing)), isLog, zoom, setPlace, setSmoothing, setLog, setZoom };
}

const words: Record<Place, string> = { batch: "Batches", epoch: "Epochs", time: "Time" };

interface ChartControlsProps {
  settings: ChartSettings;
  /** False: no epochs were reported. */
  hasEpochs?: boolean;
  /** Which horizontal axes there are to choose from; of one there is no choice. */
  places?: readonly Place[];
}

export function ChartControls({ settings, hasEpochs = true, places: offered = ["batch", "epoch", "time"] }: ChartControlsProps) {
  const { place, smoothing, isLog, zoom } = settings;
  return (
    <div className="chart-controls" role="group" aria-label="How charts are shown">
      {offered.length > 1 && (
        <span className="segments" role="group" aria-label="Horizontal axis">
          {offered.map((one) => {
            const isMissing = one === "epoch" && !hasEpochs && place !== "epoch";
            return (
              <button key={one} type="button" aria-pressed={place === one} disabled={isMissing} title={isMissing ? "No epochs were reported" : undefined} onClick={() => settings.setPlace(one)}>
                {words[one]}
              </button>
            );
          })}
        </span>
      )}
      <label>
        Smoothing
        <input type="range" min={0} max={0.99} step={0.01} value={smoothing} onChange={(event) => settings.setSmoothing(Number(event.target.value))} />
        <output className="num">{smoothing.toFixed(2)}</output>
      </label>
      <label>
        <input type="checkbox" checked={isLog} onChange={(event) => settings.setLog(event.target.checked)} />
        Log scale
      </label>
      {zoom && (
        <button type="button" onClick={() => settings.setZoom(undefined)} title="Double-click a chart does the same">
          Reset zoom
        </button>
      )}
    </div>
  );
}
