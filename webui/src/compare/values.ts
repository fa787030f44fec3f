// What is told of several trials side by side. Pure.
import { exact, short, toNumber } from "../format";
import type { components } from "../api";

export type Comparison = components["schemas"]["ComparisonAnswer"];
export type ComparedTrial = components["schemas"]["ComparedTrial"];
export type Difference = components["schemas"]["DifferenceAnswer"];

export const sections = [
  { section: "hparams", title: "Hyperparameters", one: "equal hyperparameter" },
  { section: "metrics", title: "Metrics", one: "equal metric" },
  { section: "config", title: "Configuration", one: "equal setting" },
  { section: "environment", title: "Environment", one: "equal entry", more: "equal entries" },
] as const;

/** A value as text: numbers short, lists and objects as JSON; undefined when a trial has no such key. */
export function valueText(value: unknown): string | undefined {
  if (value === undefined) return undefined;
  if (value === null) return "null";
  if (typeof value === "number") return short(value);
  if (typeof value === "string") return toNumber(value) !== undefined && /^-?(NaN|Infinity)$/.test(value) ? short(toNumber(value)!) : value;
  return typeof value === "boolean" ? String(value) : JSON.stringify(value);
}

export function fullText(value: unknown): string {
  if (value === undefined) return "not set";
  if (typeof value === "number") return exact(value);
  return typeof value === "string" ? value : JSON.stringify(value);
}

const same = (value: unknown): string => JSON.stringify(value) ?? "";

export const different = Symbol("all different");

/**
 * The value that most have: what others are marked against. Of two, the first one's.
 *
 * Where more than two have a value each of their own, none stands out, and nothing is marked.
 */
export function usual(difference: Difference, trials: readonly number[]): unknown {
  const votes = new Map<string, { value: unknown; count: number }>();
  for (const trial of trials) {
    const value = difference.values[String(trial)];
    const entry = votes.get(same(value)) ?? { value, count: 0 };
    entry.count += 1;
    votes.set(same(value), entry);
  }
  if (votes.size === trials.length && trials.length > 2) return different;
  return [...votes.values()].reduce((one, other) => (other.count > one.count ? other : one)).value;
}

export const isSame = (one: unknown, other: unknown): boolean => same(one) === same(other);

/** A text against another: what they share at both ends, and what is its own in the middle. */
export function parted(text: string, against: string): [before: string, own: string, after: string] {
  let start = 0;
  while (start < text.length && start < against.length && text[start] === against[start]) start += 1;
  let end = 0;
  const room = Math.min(text.length, against.length) - start;
  while (end < room && text.at(-1 - end) === against.at(-1 - end)) end += 1;
  return [text.slice(0, start), text.slice(start, text.length - end), text.slice(text.length - end)];
}

/** Long texts are marked where they differ; of short ones and of numbers the whole is. */
export function marked(value: unknown, against: unknown): [string, string, string] {
  const text = valueText(value) ?? "–";
  const isLong = typeof value === "string" && typeof against === "string" && text.length > 16;
  return isLong ? parted(text, against) : ["", text, ""];
}

/** The trials with the best value of a metric, where it is known which way is better. */
export function bestOf(difference: Difference, trials: readonly ComparedTrial[]): ReadonlySet<number> {
  const found = /^(.+?)\.(.+)\.(last|min|max|mean)$/.exec(difference.key);
  const known = trials.find(({ searcher_metric }) => searcher_metric !== null && found?.[1] === "validation" && found[2] === searcher_metric);
  if (difference.section !== "metrics" || !known) return new Set();
  const values = Object.entries(difference.values).flatMap(([id, value]) => {
    const number = toNumber(value as number | string);
    return number === undefined || !Number.isFinite(number) ? [] : [[Number(id), number] as const];
  });
  return best(values, known.smaller_is_better);
}

export function best(values: readonly (readonly [id: number, value: number])[], isSmaller: boolean): ReadonlySet<number> {
  if (values.length < 2) return new Set();
  const top = values.reduce((one, [, value]) => (isSmaller ? Math.min(one, value) : Math.max(one, value)), isSmaller ? Infinity : -Infinity);
  return new Set(values.filter(([, value]) => value === top).map(([id]) => id));
}

/** What each is called: by its number, and its experiment where that is needed. The number first: long names are cut. */
export function names(trials: readonly ComparedTrial[], isByExperiment: boolean): Map<number, string> {
  const experiments = new Set(trials.map(({ experiment_id }) => experiment_id));
  return new Map(
    trials.map(({ id, experiment, experiment_id }) => {
      if (isByExperiment) return [id, `#${experiment_id} ${experiment}`];
      return [id, experiments.size === 1 ? `trial ${id}` : `trial ${id} · ${experiment}`];
    }),
  );
}

/** Each keeps the colour of its own number, but for one that another before it has: then the next that is free. */
export function slots(ids: readonly number[], colours = 8): Map<number, number> {
  const taken = new Map<number, number>();
  const found = new Map<number, number>();
  for (const id of ids) {
    const own = Math.abs(id - 1) % colours;
    const least = Math.min(...Array.from({ length: colours }, (_, slot) => taken.get(slot) ?? 0));
    let slot = own;
    while ((taken.get(slot) ?? 0) > least) slot = (slot + 1) % colours;
    // A colour that is used again is dashed.
    found.set(id, slot + colours * (taken.get(slot) ?? 0));
    taken.set(slot, (taken.get(slot) ?? 0) + 1);
  }
  return found;
}
