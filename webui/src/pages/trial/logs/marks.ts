// Where a search is found in a line, and the line's pieces cut at those places.
import type { Segment } from "./ansi";

export interface Search {
  text: string;
  isRegex: boolean;
}

export interface Piece extends Segment {
  isFound: boolean;
}

/** What finds a search in a line, or undefined where the browser cannot (the server's expressions are Python's). */
export function finder({ text, isRegex }: Search): RegExp | undefined {
  if (text === "") return undefined;
  try {
    return isRegex ? new RegExp(text, "g") : new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "gi");
  } catch {
    return undefined;
  }
}

const most = 200; // marks in one line

/** From and to of each place, empty ones left out. */
export function ranges(text: string, find: RegExp | undefined): [number, number][] {
  if (!find) return [];
  const found: [number, number][] = [];
  for (const match of text.matchAll(find)) {
    if (match[0]) found.push([match.index, match.index + match[0].length]);
    if (found.length >= most) break;
  }
  return found;
}

/** The segments cut so that each piece is wholly inside or wholly outside of what was found. */
export function pieces(segments: readonly Segment[], found: readonly [number, number][]): Piece[] {
  const cut: Piece[] = [];
  let at = 0;
  let next = 0;
  for (const segment of segments) {
    const end = at + segment.text.length;
    let from = at;
    while (from < end) {
      while (next < found.length && (found[next]?.[1] ?? 0) <= from) next += 1;
      const [low, high] = found[next] ?? [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
      const isFound = low <= from;
      const to = Math.min(end, isFound ? high : low);
      cut.push({ text: segment.text.slice(from - at, to - at), style: segment.style, isFound });
      from = to;
    }
    at = end;
  }
  return cut;
}
