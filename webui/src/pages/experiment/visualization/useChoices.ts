// What of a search is shown: in the address, and remembered for each experiment.
import { useEffect } from "react";
import type { Brush } from "../../../charts/logic/search";
import { codecs, here, setQuery, useLocation, useQueryState } from "../../../route";
import { remember, remembered } from "../../../style/remembered";

export const tops = [1, 10, 20, 50, 100] as const;
export const margins = [1, 5, 10, 20, 50] as const;

/** What is remembered; a selection or a zoom is of the moment. */
const kept = ["metric", "top", "step", "margin", "hps", "scale", "heat", "x", "smooth", "log"];

function isBrush(value: unknown): value is Brush {
  const isSpan = (span: unknown) => Array.isArray(span) && span.length === 2 && span.every((end) => typeof end === "number");
  return typeof value === "object" && value !== null && !Array.isArray(value) && Object.values(value).every((spans) => Array.isArray(spans) && spans.every(isSpan));
}

/** The part of an address that is remembered. */
export function keptOf(search: string): Record<string, string> {
  const params = new URLSearchParams(search);
  return Object.fromEntries(kept.flatMap((key) => (params.has(key) ? [[key, params.get(key) as string]] : [])));
}

/** Bring back what was chosen before, unless the address chooses something itself; then keep what is chosen. */
function useMemory(experimentId: number): void {
  const name = `experiment.${experimentId}.shown`;
  const { search } = useLocation();
  useEffect(() => {
    const before = remembered<Record<string, string>>(name);
    if (before && !Object.keys(keptOf(here().search)).length) setQuery(Object.fromEntries(kept.map((key) => [key, before[key]])));
  }, [name]);
  useEffect(() => {
    const now = keptOf(search);
    remember(name, Object.keys(now).length ? now : undefined);
  }, [search]);
}

export function useChoices(experimentId: number) {
  useMemory(experimentId);
  const [metric, setMetric] = useQueryState("metric", "");
  const [top, setTop] = useQueryState("top", 100, codecs.integer);
  const [step, setStep] = useQueryState("step", 0, codecs.integer);
  const [margin, setMargin] = useQueryState("margin", 10, codecs.integer);
  const [parameters, setParameters] = useQueryState<string[]>("hps", [], codecs.list);
  const [isLogMetric, setLogMetric] = useQueryState("scale", false, { parse: (text) => text === "log", format: (isLog) => (isLog ? "log" : "linear") });
  const [layout, setLayout] = useQueryState<"grid" | "list">("heat", "grid", codecs.oneOf("grid", "list"));
  const [brush, setBrush] = useQueryState<Brush>("brush", {}, codecs.json(isBrush));
  const [selected, setSelected] = useQueryState<number[]>("select", [], codecs.integers);
  return { metric, setMetric, top, setTop, step, setStep, margin, setMargin, parameters, setParameters, isLogMetric, setLogMetric, layout, setLayout, brush, setBrush, selected, setSelected };
}

export type Choices = ReturnType<typeof useChoices>;
