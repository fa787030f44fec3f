import { expect, test } from "vitest";
import type { Line, Page } from "./window";
import { appended, empty, mostLines, nextMatch, opened, placeOf, prepended } from "./window";

const run = (first: number, last: number): Line[] => Array.from({ length: last - first + 1 }, (_, place) => ({ id: first + place }));
const page = (first: number, last: number, oldest: number | null = first): Page<Line> => ({ lines: run(first, last), oldest, newest: last });
const span = (window: { lines: Line[] }) => [window.lines[0]?.id, window.lines.at(-1)?.id, window.lines.length];

test("later lines are added once, however often they are asked for", () => {
  let window = opened(page(1, 10, null), true);
  window = appended(window, page(8, 12), 500);
  expect(span(window)).toEqual([1, 12, 12]);
  expect([window.oldest, window.newest, window.isAtEnd]).toEqual([null, 12, true]);
});

test("nothing new keeps the same window, so that nothing is drawn again", () => {
  const window = opened(page(1, 10, null), true);
  expect(appended(window, { lines: [], oldest: null, newest: 10 }, 500)).toBe(window);
});

test("a first line arriving in an empty log says whether there are earlier ones", () => {
  expect(appended(empty<Line>(), page(7, 9, 7), 500).oldest).toBe(7);
  expect(appended(empty<Line>(), page(1, 2, null), 500).oldest).toBeNull();
});

test("a full page means that there may be more", () => {
  expect(appended(opened(page(1, 10), false), page(11, 15), 5).isAtEnd).toBe(false);
  expect(appended(opened(page(1, 10), false), page(11, 14), 5).isAtEnd).toBe(true);
});

test("while following, the oldest lines are let go and can be asked for again", () => {
  let window = opened(page(1, mostLines, null), true);
  window = appended(window, page(mostLines + 1, mostLines + 100), 500);
  expect(span(window)).toEqual([101, mostLines + 100, mostLines]);
  expect(window.oldest).toBe(101);
});

test("earlier lines go before, and the cut end is no longer the log's end", () => {
  const window = prepended(opened(page(11, 20), true), page(1, 10, null));
  expect([span(window), window.oldest, window.isAtEnd]).toEqual([[1, 20, 20], null, true]);
  const full = prepended(opened(page(501, 500 + mostLines), true), page(1, 500, null));
  expect([span(full), full.newest, full.isAtEnd]).toEqual([[1, mostLines, mostLines], mostLines, false]);
});

test("a line is found by its id, or the place where it would be", () => {
  const lines = [{ id: 2 }, { id: 5 }, { id: 9 }];
  expect([1, 2, 5, 6, 9, 10].map((id) => placeOf(lines, id))).toEqual([0, 0, 1, 2, 2, 3]);
});

test("matches go round", () => {
  const ids = [3, 7, 9];
  expect([nextMatch(ids, 7, 1), nextMatch(ids, 9, 1), nextMatch(ids, 3, -1), nextMatch(ids, undefined, 1), nextMatch([], 1, 1)]).toEqual([9, 3, 9, 3, undefined]);
});
