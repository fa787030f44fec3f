// @vitest-environment jsdom
import { expect, test } from "vitest";
import type { Curve } from "./curves";
import { asEnvelope, curveLine, isStrong } from "./curves";
import { keptOf } from "./useChoices";

const curve: Curve = {
  trial_id: 7, steps: [10, 20, 30], epochs: [1, null, 3], time: ["2026-03-01T12:00:10Z", "2026-03-01T12:00:20Z", "2026-03-01T12:00:30Z"],
  value: [0.5, 0.2, null], points: 900, hparams: {}, best: 0.2, state: "ACTIVE",
};
const shown = { place: "batch" as const, began: Date.parse("2026-03-01T12:00:00Z"), selected: [], bestTrialId: 7, smallerIsBetter: true };

test("a learning curve is a line along batches, epochs or time since the experiment began", () => {
  const line = curveLine(curve, 0, shown);
  expect([line.xs, line.ys, line.odd, line.bestX, line.isFaint]).toEqual([[10, 20, 30], [0.5, 0.2, null], [{ x: 30, value: "NaN" }], 20, false]);
  expect(curveLine(curve, 0, { ...shown, place: "epoch" }).xs).toEqual([1, 3]);
  expect(curveLine(curve, 0, { ...shown, place: "time" }).xs).toEqual([10, 20, 30]);
  expect(curveLine(curve, 0, { ...shown, bestTrialId: 8 }).bestX).toBeUndefined();
});

test("the first ten stand out, or those that were selected", () => {
  expect([isStrong(1, 9, []), isStrong(1, 10, []), isStrong(1, 0, [2]), isStrong(2, 50, [2])]).toEqual([true, false, false, true]);
});

test("a zoom finds its steps in a learning curve", () => {
  expect(asEnvelope(curve)).toMatchObject({ steps: [0, 11, 21], ends: [10, 20, 30], shown: 3, points: 900 });
});

test("what was chosen is remembered, what is of the moment is not", () => {
  expect(keptOf("?metric=validation.loss&zoom=1,2&select=3&top=20")).toEqual({ metric: "validation.loss", top: "20" });
});
