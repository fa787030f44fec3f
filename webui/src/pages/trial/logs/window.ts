// Which lines of a log the page holds: one run of neighbours, grown at both ends, cut where it is not looked at. Pure.

export interface Line {
  id: number;
}

/** What the server answers: `oldest` is null where the log begins, `newest` is where to go on. */
export interface Page<L extends Line> {
  lines: L[];
  oldest: number | null;
  newest: number;
}

export interface Window<L extends Line> {
  lines: L[];
  /** Ask with `before` for earlier lines; null: there are none. */
  oldest: number | null;
  /** Ask with `after` for later ones. */
  newest: number;
  /** Whether the last line held is the log's last, as far as we know: then new lines belong here. */
  isAtEnd: boolean;
}

/** As many as stay quick to hold and to search in; a screen shows about 40. */
export const mostLines = 20_000;

export const empty = <L extends Line>(): Window<L> => ({ lines: [], oldest: null, newest: 0, isAtEnd: true });

/** A first page, or one around a line that was jumped to (`isAtEnd` is then false until a later page says otherwise). */
export function opened<L extends Line>(page: Page<L>, isAtEnd: boolean): Window<L> {
  return { lines: page.lines, oldest: page.oldest, newest: page.newest, isAtEnd };
}

/** The window with later lines. A page that is not full was the last one. */
export function appended<L extends Line>(window: Window<L>, page: Page<L>, asked: number): Window<L> {
  const last = window.lines.at(-1)?.id ?? Number.NEGATIVE_INFINITY;
  const fresh = page.lines.filter((line) => line.id > last);
  const isAtEnd = page.lines.length < asked;
  const newest = Math.max(window.newest, page.newest);
  if (fresh.length === 0 && isAtEnd === window.isAtEnd && newest === window.newest) return window;
  const lines = [...window.lines, ...fresh];
  const surplus = lines.length - mostLines;
  if (surplus <= 0) return { lines, oldest: lines.length === fresh.length ? page.oldest : window.oldest, newest, isAtEnd };
  const kept = lines.slice(surplus);
  return { lines: kept, oldest: kept[0]?.id ?? null, newest, isAtEnd };
}

/** The window with earlier lines; the far end is cut, and then is not the log's end any more. */
export function prepended<L extends Line>(window: Window<L>, page: Page<L>): Window<L> {
  const first = window.lines[0]?.id ?? Number.POSITIVE_INFINITY;
  const fresh = page.lines.filter((line) => line.id < first);
  const lines = [...fresh, ...window.lines];
  if (lines.length <= mostLines) return { ...window, lines, oldest: page.oldest };
  const kept = lines.slice(0, mostLines);
  return { lines: kept, oldest: page.oldest, newest: kept.at(-1)?.id ?? window.newest, isAtEnd: false };
}

/** Where a line is, or would be: ids grow, so it is found by halving. */
export function placeOf<L extends Line>(lines: readonly L[], id: number): number {
  let low = 0;
  let high = lines.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((lines[middle]?.id ?? 0) < id) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** The next match after (or before) a line, going round at the ends. */
export function nextMatch(ids: readonly number[], from: number | undefined, step: 1 | -1): number | undefined {
  if (ids.length === 0) return undefined;
  if (from === undefined) return step === 1 ? ids[0] : ids.at(-1);
  const later = step === 1 ? ids.find((id) => id > from) : ids.findLast((id) => id < from);
  return later ?? (step === 1 ? ids[0] : ids.at(-1));
}
