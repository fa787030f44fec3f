import { expect, test } from "vitest";
import { marks, pieces } from "./moments";
import type { Moment } from "./moments";
import { spark } from "./sparkline";

test("a small curve fills its box, and a gap begins a new piece", () => {
  expect(spark([1, 3, null, 2, 1], 44, 20).path).toBe("M2.0 18.0L12.0 2.0M32.0 10.0L42.0 18.0");
});

test("flat curves run through the middle, single points are dots, nothing is nothing", () => {
  expect(spark([5, 5], 44, 20).path).toBe("M2.0 10.0L42.0 10.0");
  expect(spark([7], 44, 20)).toEqual({ path: "", dots: [[22, 10]] });
  expect(spark([1, null, 2], 44, 20).dots).toHaveLength(2);
  expect(spark([], 44, 20)).toEqual({ path: "", dots: [] });
  expect(spark([null, null], 44, 20)).toEqual({ path: "", dots: [] });
});

const at = (second: number, kind: Moment["kind"], said: string): Moment => ({ time: `2026-03-01T12:00:${String(second).padStart(2, "0")}Z`, kind, steps: null, said });
const life = [at(0, "attempt", "attempt 1"), at(10, "validation", "v1"), at(11, "checkpoint", "c1"), at(30, "attempt", "attempt 2"), at(40, "end", "completed")];

test("moments that would touch are one mark, of the kind that matters most", () => {
  const found = marks(life, 0, 100);
  expect(found.map((mark) => [mark.at, mark.kind, mark.said])).toEqual([
    [0, "attempt", ["attempt 1"]],
    [0.25, "checkpoint", ["v1", "c1"]],
    [0.75, "attempt", ["attempt 2"]],
    [1, "end", ["completed"]],
  ]);
  expect(marks(life, 0, 10_000)).toHaveLength(5);
});

test("a trial that runs has a strip until now, one that ended until its end", () => {
  const now = Date.parse("2026-03-01T12:01:20Z");
  expect(pieces(life.slice(0, 4), now)).toEqual([
    { from: 0, to: 0.375, attempt: 1 },
    { from: 0.375, to: 1, attempt: 2 },
  ]);
  expect(pieces(life, now).map((piece) => piece.from)).toEqual([0, 0.75]);
  expect(pieces([], now)).toEqual([]);
});
