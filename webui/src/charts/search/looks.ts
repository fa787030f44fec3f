// How the charts of a search look: the same axes, texts and colours as curves have.
import { short } from "../../format";
import { tickText } from "../logic/ticks";
import type { Metric, Result } from "../logic/search";
import type { Colors } from "../shell/palette";

const parts = (color: string): number[] => [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));

function mix(one: string, other: string, share: number): string {
  const [from, to] = [parts(one), parts(other)];
  const mixed = from.map((value, at) => Math.round(value + ((to[at] as number) - value) * share));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** The colour of something that is `share` good, 0 to 1: pale to strong on either background. */
export function rampColor(share: number, colors: Colors): string {
  const middle = mix(colors.line, colors.accent, 0.65);
  if (share < 0.5) return mix(mix(colors.line, colors.faint, 0.2), middle, share * 2);
  return mix(middle, mix(colors.accent, colors.text, 0.4), share * 2 - 1);
}

export const font = "system-ui, sans-serif";

export function axisLook(colors: Colors) {
  return {
    nameTextStyle: { color: colors.muted, fontSize: 11, fontFamily: font },
    axisLabel: { color: colors.muted, fontSize: 11, fontFamily: font, formatter: (value: string | number) => (typeof value === "number" ? tickText(value) : value), hideOverlap: true },
    axisLine: { show: true, lineStyle: { color: colors.line } },
    axisTick: { show: false },
    minorTick: { show: false },
    splitLine: { show: false },
    splitNumber: 5,
  };
}

/** Rich text, not markup: names come from users. */
export function tipLook(colors: Colors) {
  return {
    renderMode: "richText" as const,
    backgroundColor: colors.raised,
    borderColor: colors.line,
    borderWidth: 1,
    padding: [6, 10],
    textStyle: { color: colors.text, fontSize: 12, fontFamily: font },
    transitionDuration: 0,
    confine: true,
  };
}

/** Braces are rich text's own marks. */
export const plain = (text: string): string => text.replace(/[{}|]/g, " ");

const valueText = (value: unknown): string => (typeof value === "number" ? short(value) : typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

/** A trial in a tooltip: its name, its metric, its values. */
export function trialText(result: Result, metric: Metric, names: readonly string[]): string {
  const lines = [result.name, `${metric.name}: ${result.metric === null ? "no value" : short(result.metric)}`];
  for (const name of names) lines.push(`${name}: ${valueText(result.values[name] ?? "")}`);
  return plain(lines.map((line) => (line.length > 60 ? `${line.slice(0, 59)}…` : line)).join("\n"));
}
