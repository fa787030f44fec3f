// Which columns are shown, in which order and how wide.
import type { Column, Section } from "../types";
import { bare, usual } from "./sort";
import type { View } from "./view";

export interface Placed {
  column: Column;
  width: number;
  /** From the left edge of the row, in pixels. */
  left: number;
  /** Place among the shown columns, from 0. */
  place: number;
}

export const sections: { section: Section; title: string }[] = [
  { section: "run", title: "Run" },
  { section: "hparams", title: "Hyperparameters" },
  { section: "metrics", title: "Metrics" },
  { section: "metadata", title: "Metadata" },
];
export const narrowest = 48;
const widest = 1200;

/** What a phone shows beside the first column. */
const important = ["run.state", "run.best_metric"];

/** The columns that the view names and the store has; without a choice those that the server shows at first. */
export function shown(all: readonly Column[], view: Pick<View, "columns">, isNarrow = false): Column[] {
  if (!view.columns) {
    const first = all.filter((column) => column.is_shown);
    const rank = ({ key }: Column) => (key === first[0]?.key ? -1 : (important.indexOf(key) + important.length + 1) % (important.length + 1));
    return isNarrow ? first.toSorted((one, other) => rank(one) - rank(other)) : first;
  }
  const byKey = new Map(all.map((column) => [column.key, column]));
  return view.columns.flatMap((key) => byKey.get(key) ?? []);
}

/** The view without an order or groups by columns that this store does not have: a remembered one may know others. */
export function possible(view: View, known: ReadonlyMap<string, unknown>): View {
  const sort = view.sort.filter((entry) => known.has(bare(entry)));
  const group = view.group !== null && known.has(view.group) ? view.group : null;
  if (sort.length === view.sort.length && group === view.group) return view;
  return { ...view, sort: sort.length ? sort : [...usual], group };
}

const widths: Record<Column["type"], number> = {
  number: 98,
  text: 150,
  time: 108,
  duration: 106,
  bytes: 88,
  state: 112,
  boolean: 76,
  labels: 150,
};

const own: Record<string, number> = { spark: 96, "run.progress": 120, "run.name": 220, "run.trials": 72, "run.batches": 84 };

/** As wide as the type usually needs, and as the title does (about 7 px a letter, and the mark of the order). */
export function usualWidth(column: Column, isFirst: boolean, isNarrow: boolean): number {
  if (column.key === "run.id") return isFirst ? 84 : 72;
  if (isFirst) return isNarrow ? 120 : 236;
  if (isNarrow) return widths[column.type];
  if (own[column.key]) return own[column.key]!;
  return Math.max(widths[column.type], Math.min(220, column.title.length * 7 + 34));
}

export function placed(columns: readonly Column[], chosen: Record<string, number>, start: number, isNarrow: boolean): Placed[] {
  let left = start;
  return columns.map((column, place) => {
    const width = (isNarrow && place === 0 ? undefined : chosen[column.key]) ?? usualWidth(column, place === 0, isNarrow);
    const one = { column, width, left, place };
    left += width;
    return one;
  });
}

export const clampWidth = (width: number): number => Math.round(Math.min(widest, Math.max(narrowest, width)));

/** The columns that a window of this width shows, and some beside it; the first is sticky and always among them. */
export function inWindow(columns: readonly Placed[], scrollLeft: number, width: number, margin = 300): Placed[] {
  return columns.filter(({ left, width: own, place }) => place === 0 || (left + own > scrollLeft - margin && left < scrollLeft + width + margin));
}

/** The keys after `key` was carried to `place`. */
export function moved(keys: readonly string[], key: string, place: number): string[] {
  const rest = keys.filter((one) => one !== key);
  const to = Math.max(0, Math.min(rest.length, place));
  return [...rest.slice(0, to), key, ...rest.slice(to)];
}

/** Columns whose title or key holds every word of `text`. */
export function found(columns: readonly Column[], text: string): Column[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return columns.filter(({ title, key }) => {
    const hay = `${title} ${key}`.toLowerCase();
    return words.every((word) => hay.includes(word));
  });
}
