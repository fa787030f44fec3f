import { expect, test } from "vitest";
import type { Column } from "../types";
import { groupsOf } from "../state/userows";
import { exported, heads } from "./export";
import { share, tint } from "./heat";
import { Layout, drift, pagesOf } from "./layout";
import { marksOf } from "./marks";
import { added, between, most, nothing, toggled } from "./selection";

test("a row is toggled, and a range reaches from the last toggled one in either direction", () => {
  const order = [9, 8, 7, 6, 5];
  let chosen = toggled(nothing, 8);
  chosen = added(chosen, between(order, chosen.anchor, 6));
  expect(chosen).toEqual({ ids: [8, 7, 6], anchor: 8 });
  expect(between(order, 6, 9)).toEqual([9, 8, 7, 6]);
  expect(between(order, 42, 9)).toEqual([9]);
  expect(between(order, 9, 42)).toEqual([]);
  expect(toggled(chosen, 7)).toEqual({ ids: [8, 6], anchor: 7 });
});

test("no more rows are selected than one action takes", () => {
  const many = Array.from({ length: 600 }, (_, id) => id);
  expect(added(nothing, many).ids).toHaveLength(most);
  expect(toggled(added(nothing, many), 599).ids).not.toContain(599);
});

test("heat is a share between the extremes, by magnitude where they are far apart", () => {
  expect(share(5, { low: 0, high: 10 })).toBe(0.5);
  expect(share(0.001, { low: 0.00001, high: 0.1 })).toBeCloseTo(0.5);
  expect([share(Number.NaN, { low: 0, high: 1 }), share(1, { low: 1, high: 1 })]).toEqual([undefined, undefined]);
  expect(tint(2, { low: 0, high: 1 })).toContain("38%");
  expect(tint(0, undefined)).toBeUndefined();
});

test("without groups a line is a row", () => {
  const layout = new Layout(10_000, null);
  expect([layout.count, layout.at(7), layout.lineOf(7)]).toEqual([10_000, { kind: "row", offset: 7 }, 7]);
});

test("groups have a line of their own, and a folded one hides its rows", () => {
  const groups: [string, number][] = [["ACTIVE", 2], ["PAUSED", 3], ["ERROR", 1]];
  const open = new Layout(6, groups);
  expect(Array.from({ length: open.count }, (_, line) => open.at(line)).map((line) => (line.kind === "row" ? line.offset : line.value))).toEqual([
    "ACTIVE", 0, 1, "PAUSED", 2, 3, 4, "ERROR", 5,
  ]);
  const folded = new Layout(6, groups, new Set(["PAUSED"]));
  expect([folded.count, folded.at(3), folded.at(5)]).toEqual([
    6,
    { kind: "group", value: "PAUSED", count: 3, isFolded: true },
    { kind: "row", offset: 5 },
  ]);
  expect([folded.lineOf(1), folded.lineOf(3), folded.lineOf(5)]).toEqual([2, undefined, 5]);
});

test("the cursor steps over names of groups and over folded ones, and stays at the ends", () => {
  const layout = new Layout(6, [["a", 2], ["b", 3], ["c", 1]], new Set(["b"]));
  expect([layout.moved(0, 1), layout.moved(1, 1), layout.moved(5, -1), layout.moved(5, 1), layout.moved(0, -1)]).toEqual([1, 5, 1, 5, 0]);
  expect([layout.moved(0, 100), layout.moved(5, -100), layout.moved(3, 1)]).toEqual([5, 0, 5]);
  const plain = new Layout(3, null);
  expect([plain.moved(0, 1), plain.moved(2, 1), plain.moved(1, -9)]).toEqual([1, 2, 0]);
  expect(new Layout(2, [["a", 2]], new Set(["a"])).moved(0, 1)).toBe(0);
});

test("pages that hold the rows in sight are asked once", () => {
  expect(pagesOf([199, 200, 201, 0], 200)).toEqual([0, 1]);
});

test("rows that came above move what is in sight by as many; a few that changed places do not", () => {
  const seen = [{ id: 5, offset: 10 }, { id: 4, offset: 11 }, { id: 3, offset: 12 }];
  expect(drift(seen, new Map([[5, 13], [4, 14], [3, 15]]))).toBe(3);
  expect(drift(seen, new Map([[4, 10], [3, 11]]))).toBe(-1);
  expect(drift(seen, new Map([[5, 2], [4, 11], [3, 12]]))).toBe(0);
  expect(drift(seen, new Map([[5, 2], [4, 30], [3, 12]]))).toBe(0);
  expect(drift(seen, new Map())).toBe(0);
});

const column = (key: string, title: string): Column => ({ key, title, section: "run", type: "text", operators: [], is_shown: true });

test("all pages of rows go into one file, lists as text, and equal titles are told apart", async () => {
  const steps: string[] = [];
  const all = Array.from({ length: 1001 }, (_, id) => ({ id, cells: id ? [null, 0.5] : [["a", "b"], 0.125] }));
  const text = await exported({
    columns: [column("run.labels", "Labels"), column("metrics.a.loss.min", "loss")],
    ask: async (offset, limit) => ({ total: 1001, rows: all.slice(offset, offset + limit) }) as never,
    onProgress: (done, total) => steps.push(`${done}/${total}`),
  });
  expect(text.split("\n").slice(0, 3)).toEqual(["ID,Labels,loss", '0,"a, b",0.125', "1,,0.5"]);
  expect([text.split("\n").length, steps]).toEqual([1003, ["1000/1001", "1001/1001"]]);
  const numbered = await exported({
    columns: [column("run.id", "Trial")],
    ask: async () => ({ total: 1, rows: [{ id: 7, cells: [7] }] }) as never,
    onProgress: () => undefined,
  });
  expect(numbered).toBe("Trial\n7\n");
  expect(heads([column("hparams.lr", "lr"), column("metrics.training.lr.last", "lr"), column("run.id", "ID")])).toEqual(["hparams.lr", "metrics.training.lr.last", "ID"]);
});

test("rows of more groups than the server counts stand in one at the end", () => {
  const groups = [{ value: "2", count: 3 }, { value: "0.5", count: 1 }];
  expect(groupsOf({ groups, total: 4 })).toEqual([["2", 3], ["0.5", 1]]);
  expect(groupsOf({ groups, total: 9 }).at(-1)).toEqual(["other values", 5]);
});

test("selected rows have the colours of their curves, an experiment that of its best trial", () => {
  const rows = [{ id: 1, trial_id: 9 }, { id: 2, trial_id: null }, { id: 3, trial_id: 4 }];
  expect([...marksOf("experiments", [3, 2, 1], rows)]).toEqual([[3, "var(--series-4)"], [1, "var(--series-1)"]]);
  expect([...marksOf("trials", [1, 3], rows).keys()]).toEqual([1, 3]);
  expect(marksOf("trials", [1], rows).size).toBe(0);
});
