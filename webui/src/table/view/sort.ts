// The order of rows: keys of columns, the most important first; a leading minus is descending.
import type { Column } from "../types";

export const usual: readonly string[] = ["-run.id"];
const most = 8;

export const bare = (entry: string): string => entry.replace(/^-/, "");
export const isDescending = (entry: string): boolean => entry.startsWith("-");

/** New things first; everything else from small to large. */
function first(column: Column): string {
  return column.type === "time" || column.key === "run.id" ? `-${column.key}` : column.key;
}

const flipped = (entry: string): string => (isDescending(entry) ? bare(entry) : `-${entry}`);

/** What a click on a head does: its first direction, then the other, then the usual order again. With shift: among others. */
export function clicked(sort: readonly string[], column: Column, isAdded: boolean): string[] {
  const now = sort.find((entry) => bare(entry) === column.key);
  const begin = first(column);
  if (!isAdded) {
    const isAlone = now !== undefined && sort.length === 1;
    if (!isAlone) return [begin];
    return now === begin ? [flipped(begin)] : [...usual];
  }
  if (now === undefined) return [...sort, begin].slice(-most);
  const next = now === begin ? sort.map((entry) => (entry === now ? flipped(now) : entry)) : sort.filter((entry) => entry !== now);
  return next.length ? next : [...usual];
}

/** Where a column stands in the order (from 1) and which way, or undefined. */
export function sorted(sort: readonly string[], key: string): { place: number; direction: "ascending" | "descending" } | undefined {
  const place = sort.findIndex((entry) => bare(entry) === key);
  if (place < 0) return undefined;
  return { place: place + 1, direction: isDescending(sort[place]!) ? "descending" : "ascending" };
}
