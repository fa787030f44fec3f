// What the search dialog's form holds while one types, and what it says to the server once it is complete. Pure.

export type Json = unknown;
export type Kind = "const" | "int" | "double" | "log" | "categorical";
export type Searcher = "random" | "grid" | "adaptive_asha" | "async_halving";

/** One hyperparameter. Everything typed stays text until it is asked for, so that half a number is not an error yet. */
export interface Row {
  name: string;
  kind: Kind;
  /** The value it has now: what a constant keeps and what ranges are suggested around. */
  value: Json;
  min: string;
  max: string;
  base: string;
  count: string;
  values: string;
}

export interface Form {
  searcher: Searcher;
  metric: string;
  smallerIsBetter: boolean;
  maxTrials: string;
  maxTime: string;
  timeMetric: string;
  maxConcurrent: string;
  name: string;
  rows: Row[];
}

export interface Range {
  name: string;
  type: Kind;
  val?: Json;
  minval?: number | null;
  maxval?: number | null;
  base?: number | null;
  count?: number | null;
  vals?: Json[] | null;
}

/** The body of POST search-config. */
export interface Asked {
  searcher: Searcher;
  metric?: string | null;
  smaller_is_better?: boolean | null;
  max_trials?: number | null;
  max_time?: number | null;
  time_metric?: string | null;
  max_concurrent_trials?: number | null;
  name?: string | null;
  ranges: Range[];
}

export const needs = {
  trials: (searcher: Searcher) => searcher !== "grid",
  time: (searcher: Searcher) => searcher === "adaptive_asha" || searcher === "async_halving",
  count: (searcher: Searcher) => searcher === "grid",
};

/** Names with dots and their values; a list is one value, and so is an empty group. */
export function flat(hparams: Record<string, Json>, prefix = ""): [string, Json][] {
  return Object.entries(hparams)
    .sort(([a], [b]) => a.localeCompare(b, "en"))
    .flatMap(([key, value]): [string, Json][] => (isGroup(value) ? flat(value, `${prefix}${key}.`) : [[prefix + key, value]]));
}

const isGroup = (value: Json): value is Record<string, Json> =>
  typeof value === "object" && value !== null && !Array.isArray(value) && Object.keys(value).length > 0;

export function rowsOf(hparams: Record<string, Json>): Row[] {
  return flat(hparams).map(([name, value]) => ({ name, kind: "const", value, min: "", max: "", base: "10", count: "", values: "" }));
}

const written = (value: Json): string => (value === undefined || value === null ? "" : String(value));

/** A row of what the server knows of a hyperparameter. */
export function rowOf(range: Range): Row {
  const { name, type: kind, val: value } = range;
  const values = range.vals ? listed(range.vals) : "";
  return { name, kind, value, min: written(range.minval), max: written(range.maxval), base: written(range.base) || "10", count: written(range.count), values };
}

/** The form that a dialog begins with. */
export function formOf(start: Asked): Form {
  return {
    searcher: start.searcher,
    metric: start.metric ?? "",
    smallerIsBetter: start.smaller_is_better ?? true,
    maxTrials: written(start.max_trials) || "16",
    maxTime: written(start.max_time),
    timeMetric: start.time_metric ?? "",
    maxConcurrent: written(start.max_concurrent_trials),
    name: start.name ?? "",
    rows: start.ranges.map(rowOf).sort((a, b) => a.name.localeCompare(b.name, "en")),
  };
}

/** The row as another kind, with a range suggested around the value it has now; what was typed stays. */
export function asKind(row: Row, kind: Kind): Row {
  const next = { ...row, kind };
  if (kind === "const") return next;
  if (kind === "categorical") return row.values ? next : { ...next, values: suggestedValues(row.value) };
  if (row.kind !== "const" && (row.kind === "log") === (kind === "log")) return next;
  const [min, max] = suggested(kind, typeof row.value === "number" ? row.value : undefined);
  return { ...next, min, max };
}

function suggested(kind: Kind, value: number | undefined): [string, string] {
  if (kind === "log") {
    const middle = value && value > 0 ? Math.log10(value) : -3;
    return [String(Math.floor(middle - 0.5)), String(Math.ceil(middle + 0.5))];
  }
  if (kind === "int") {
    const middle = Math.round(value ?? 4);
    const low = middle > 1 ? Math.max(1, Math.floor(middle / 2)) : middle - 1;
    return [String(low), String(Math.max(middle * 2, low + 2))];
  }
  if (value === undefined || value === 0) return ["0", "1"];
  const ends = [neat(value / 2), neat(value * 2)].sort((a, b) => a - b);
  return [String(ends[0]), String(ends[1])];
}

const neat = (value: number): number => Number(value.toPrecision(4));

function suggestedValues(value: Json): string {
  if (value === undefined) return "";
  return typeof value === "boolean" ? "true, false" : listed([value]);
}

/** A list as `readValues` reads it back. */
function listed(values: readonly Json[]): string {
  if (values.some((value) => typeof value === "object" && value !== null)) return JSON.stringify(values);
  return values.map((value) => (typeof value === "string" ? quoted(value) : JSON.stringify(value))).join(", ");
}

// A text that would be read as something else, or cut at its comma, is written with quotes.
const quoted = (text: string): string => (parsed(text) !== text || /[,\s]/.test(text) ? JSON.stringify(text) : text);

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** "16, 32, relu" or any JSON list; words need no quotes. */
export function readValues(text: string): Json[] {
  const trimmed = text.trim();
  if (trimmed === "") return [];
  const whole = parsed(trimmed.startsWith("[") ? trimmed : `[${trimmed}]`);
  if (Array.isArray(whole)) return whole;
  return trimmed.split(",").map((part) => parsed(part.trim()));
}

export interface Read {
  asked: Asked | undefined;
  /** Field (`maxTrials`, `lr.min`) to the sentence that says what it lacks. */
  problems: Record<string, string>;
}

/** The form as the server wants it, or what is still missing. */
export function read(form: Form): Read {
  const problems: Record<string, string> = {};
  const ranges = form.rows.map((row) => range(row, form.searcher, problems));
  const asked: Asked = { searcher: form.searcher, ranges, smaller_is_better: form.smallerIsBetter };
  if (form.metric.trim()) asked.metric = form.metric.trim();
  if (form.name.trim()) asked.name = form.name.trim();
  if (needs.trials(form.searcher)) asked.max_trials = whole(form.maxTrials, "maxTrials", "How many trials to try, for example 16.", problems);
  if (needs.time(form.searcher)) {
    asked.max_time = whole(form.maxTime, "maxTime", "How long the longest trial trains, for example 1000.", problems);
    asked.time_metric = form.timeMetric.trim() || "batches";
  }
  if (form.maxConcurrent.trim()) {
    asked.max_concurrent_trials = whole(form.maxConcurrent, "maxConcurrent", "A whole number; 0 is no limit.", problems, 0);
  }
  if (form.rows.every((row) => row.kind === "const")) problems.rows = "Nothing is searched yet. Give at least one hyperparameter a range.";
  return { asked: Object.keys(problems).length ? undefined : asked, problems };
}

function whole(text: string, field: string, said: string, problems: Record<string, string>, least = 1): number {
  const value = Number(text);
  if (/^\d+$/.test(text.trim()) && value >= least) return value;
  problems[field] = said;
  return least;
}

function range(row: Row, searcher: Searcher, problems: Record<string, string>): Range {
  const named = { name: row.name, type: row.kind };
  if (row.kind === "const") return { ...named, val: row.value };
  if (row.kind === "categorical") {
    const vals = readValues(row.values);
    if (vals.length === 0) problems[`${row.name}.values`] = "List the values to try, for example: 16, 32, 64.";
    return { ...named, vals };
  }
  const made: Range = { ...named, minval: bound(row, "min", problems), maxval: bound(row, "max", problems) };
  const isRead = !problems[`${row.name}.min`] && !problems[`${row.name}.max`];
  if (isRead && Number(row.min) >= Number(row.max)) problems[`${row.name}.max`] = `The end has to be more than ${row.min.trim()}.`;
  if (row.kind === "log") made.base = positive(row, problems);
  if (needs.count(searcher)) made.count = whole(row.count, `${row.name}.count`, "A grid needs to know how many points to try, for example 5.", problems);
  else if (/^[1-9]\d*$/.test(row.count.trim())) made.count = Number(row.count); // not asked for, but kept
  return made;
}

function bound(row: Row, end: "min" | "max", problems: Record<string, string>): number {
  const text = row[end].trim();
  const value = Number(text);
  const isFine = text !== "" && Number.isFinite(value) && (row.kind !== "int" || Number.isInteger(value));
  if (!isFine) problems[`${row.name}.${end}`] = row.kind === "int" ? "Both ends have to be whole numbers." : "Both ends have to be numbers.";
  return isFine ? value : 0;
}

function positive(row: Row, problems: Record<string, string>): number {
  const value = Number(row.base);
  if (row.base.trim() !== "" && value > 0 && Number.isFinite(value)) return value;
  problems[`${row.name}.base`] = "The base has to be a number above 0, usually 10.";
  return 10;
}
