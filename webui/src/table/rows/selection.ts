// Which rows are selected, in the order in which they were, and from where a range would be drawn. Pure.

/** As many as one bulk action takes. */
export const most = 500;

export interface Selection {
  ids: readonly number[];
  /** The row that was toggled last: a range begins there. */
  anchor: number | null;
}

export const nothing: Selection = { ids: [], anchor: null };

export function toggled({ ids }: Selection, id: number): Selection {
  if (ids.includes(id)) return { ids: ids.filter((one) => one !== id), anchor: id };
  return { ids: [...ids, id].slice(0, most), anchor: id };
}

/** With all of these, up to the most that fit; those that were selected stay first. */
export function added({ ids, anchor }: Selection, more: readonly number[]): Selection {
  return { ids: [...new Set([...ids, ...more])].slice(0, most), anchor: anchor ?? more.at(-1) ?? null };
}

/** The rows from the anchor to `id`, both included, as they stand in `order`; only `id` when the anchor is not there. */
export function between(order: readonly number[], anchor: number | null, id: number): number[] {
  const to = order.indexOf(id);
  const from = anchor === null ? -1 : order.indexOf(anchor);
  if (to < 0) return [];
  if (from < 0) return [id];
  return order.slice(Math.min(from, to), Math.max(from, to) + 1);
}
