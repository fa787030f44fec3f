// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { Line } from "../logic/lines";
import { around, dragged, lineNear, rowsAt } from "./hover";
import { placeEnds } from "./paint";
import { formatZoom, parseZoom } from "./settings";
import { pointsNote, summary } from "./summary";
import { detail, placeText } from "./Tooltip";

const line = (trialId: number, ys: (number | null)[], more: Partial<Line> = {}): Line => ({
  id: String(trialId), name: `trial ${trialId}`, trialId, color: "#000", dash: [], xs: ys.map((_, at) => at * 10), ys, steps: ys.map((_, at) => at * 10),
  odd: [], shown: ys.length, total: ys.length, ...more,
});

test("values under the mouse are sorted, and lines that ended before are left out", () => {
  const rows = rowsAt([line(1, [1, 2, 3]), line(2, [5, 6, 7]), line(3, [9])], new Map(), 20, 2);
  expect(rows.map((row) => [row.line.trialId, row.value])).toEqual([[2, 7], [1, 3]]);
});

test("NaN and infinities are listed where they were reported", () => {
  const [row] = rowsAt([line(1, [1, null, 3], { odd: [{ x: 10, value: "NaN" }] })], new Map(), 11, 2);
  expect([row?.value, row?.odd]).toEqual([null, "NaN"]);
  expect(rowsAt([line(1, [], { odd: [{ x: 10, value: "Infinity" }] })], new Map(), 10, 2)[0]?.odd).toBe("Infinity");
});

test("smoothed values order the rows, and the raw one is told", () => {
  const rows = rowsAt([line(1, [1]), line(2, [0])], new Map([["1", [0.2]], ["2", [0.5]]]), 0, 1);
  expect(rows.map((row) => row.line.trialId)).toEqual([2, 1]);
  expect(detail(rows[1] as never)).toBe("raw 1");
});

test("of many rows those around the lit one are shown", () => {
  const rows = rowsAt(Array.from({ length: 40 }, (_, at) => line(at, [40 - at])), new Map(), 0, 1);
  expect(around(rows, 20, 5).map((row) => row.line.trialId)).toEqual([18, 19, 20, 21, 22]);
  expect(around(rows, 39, 5).map((row) => row.line.trialId)).toEqual([35, 36, 37, 38, 39]);
  expect(around(rows, undefined, 5)[0]?.line.trialId).toBe(0);
});

test("the line nearest to the mouse is found, but none from afar", () => {
  const rows = rowsAt([line(1, [1]), line(2, [2])], new Map(), 0, 1);
  expect(lineNear(rows, 18, (value) => value * 10, 5)?.line.trialId).toBe(2);
  expect(lineNear(rows, 99, (value) => value * 10, 5)).toBeUndefined();
});

test("names that would touch are left out, those of later lines first", () => {
  expect(placeEnds([{ y: 50 }, { y: 55 }, { y: 10 }, { y: 70 }], 13).map((end) => end.y)).toEqual([50, 10, 70]);
});

test("a zoom is where it was after a reload", () => {
  expect(parseZoom(formatZoom([100.123456789, 2e6]))).toEqual([100.1235, 2e6]);
  expect([parseZoom(""), parseZoom("5,5"), parseZoom("9,1"), parseZoom("x")]).toEqual([undefined, undefined, undefined, undefined]);
  expect([dragged(9, 1, 40), dragged(1, 1.1, 3)]).toEqual([[1, 9], undefined]);
});

test("a chart says itself in words", () => {
  const lines = [line(1, [3, 2, null], { odd: [{ x: 20, value: "NaN" }], total: 500 })];
  expect(summary("loss", lines, "batch")).toBe("loss, 1 line up to 20 batches: trial 1 ends at 2; 1 point not finite");
  expect(summary("loss", [], "batch")).toBe("loss: no points");
  expect(pointsNote(lines)).toBe("showing 3 of 500 points");
  expect(pointsNote([line(1, [1])])).toBe("");
  expect([placeText(1200, "batch"), placeText(3.5, "epoch"), placeText(65, "time")]).toEqual(["batch 1,200", "epoch 3.5", "1 min 5 s after the start"]);
});
