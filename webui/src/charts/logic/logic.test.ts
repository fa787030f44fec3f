import { expect, test } from "vitest";
import { amounts, byteTicks } from "./amounts";
import type { Series } from "./charts";
import { charts, namesLike, seriesName } from "./charts";
import { linesCsv, toCsv } from "./csv";
import type { Envelope } from "./envelopes";
import { isCoarse, stepsOf, toLine } from "./envelopes";
import type { Line } from "./lines";
import { extentX, extentY, nearest, padded, window } from "./lines";
import { smooth } from "./smooth";
import { linearTicks, logTicks, tickText, timeText, timeTicks } from "./ticks";

test("smoothing keeps a constant as it is from the first point on", () => {
  for (const value of smooth([2, 2, 2, 2], 0.9)) expect(value).toBeCloseTo(2, 12);
});

test("smoothing is a debiased exponential mean, leaves gaps, and 0 changes nothing", () => {
  const [first, gap, second] = smooth([1, null, 0], 0.5);
  expect(first).toBeCloseTo(1);
  expect(gap).toBeNull();
  expect(second).toBeCloseTo(0.25 / 0.75);
  expect(smooth([1, 5, 3], 0)).toEqual([1, 5, 3]);
});

test("ticks are round, few and inside", () => {
  expect(linearTicks([0, 1])).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
  expect(linearTicks([0.31, 0.38], 4)).toEqual([0.32, 0.34, 0.36, 0.38]);
  expect(linearTicks([0, 3], 6, true)).toEqual([0, 1, 2, 3]);
  expect(linearTicks([5, 5])).toEqual([]);
  expect(linearTicks([-1e-7, 1e-7], 4)).toEqual([-1e-7, -5e-8, 0, 5e-8, 1e-7]);
  for (const [low, high] of [[0, 1234], [-3, 0.01], [1e8, 3e9]] as const) expect(linearTicks([low, high]).length).toBeLessThanOrEqual(7);
});

test("logarithmic ticks are decades, then 1 2 5, then round numbers", () => {
  expect(logTicks([1e-4, 1])).toEqual([1e-4, 1e-3, 1e-2, 0.1, 1].map((value) => expect.closeTo(value, 12)));
  expect(logTicks([0.5, 20])).toEqual([0.5, 1, 2, 5, 10, 20]);
  expect(logTicks([0.24, 1.5])).toEqual([0.3, 0.4, 0.6, 0.8, 1]);
  expect(logTicks([0.31, 0.38], 4)).toEqual([0.32, 0.34, 0.36, 0.38]);
  expect(logTicks([0, 1])).toEqual([]);
  expect(logTicks([1e-30, 1]).length).toBeLessThanOrEqual(7);
});

test("time has the ticks of clocks", () => {
  expect(timeTicks([0, 600])).toEqual([0, 120, 240, 360, 480, 600]);
  expect(timeTicks([0, 7200])).toEqual([0, 1800, 3600, 5400, 7200]);
  expect(timeTicks([0, 20 * 86400], 5)).toEqual([0, 4, 8, 12, 16, 20].map((day) => day * 86400));
  expect(timeText(5400)).toBe("1 h 30 min");
});

test("ticks read short", () => {
  expect([0, 1500, 20_000, 2.5e6, 3e9, 0.05, 1e-5, -2].map(tickText)).toEqual(["0", "1,500", "20k", "2.5M", "3G", "0.05", "1e-5", "−2"]);
});

const line = (given: Partial<Line>): Line => ({ id: "1", name: "loss", trialId: 1, color: "#000", dash: [], xs: [], ys: [], steps: [], odd: [], shown: 0, total: 0, ...given });

test("the point nearest to a place is found, and lines reach the edges of what is shown", () => {
  const xs = [10, 20, 30, 40];
  expect([0, 14, 16, 99].map((x) => nearest(xs, x))).toEqual([0, 0, 1, 3]);
  expect(nearest([], 1)).toBe(-1);
  expect(window(xs, [15, 25])).toEqual([0, 2]);
  expect(window(xs, [20, 30])).toEqual([1, 3]);
});

test("extremes of buckets count, gaps do not, and a log axis ignores what it cannot show", () => {
  const one = line({ xs: [0, 1, 2], ys: [1, null, 3], lows: [-5, null, 2], highs: [2, null, 9] });
  expect(extentX([one])).toEqual([0, 2]);
  expect(extentY([one], [0, 2], false)).toEqual([-5, 9]);
  expect(extentY([one], [0, 2], true)).toEqual([1, 9]);
  expect(extentY([one], [2, 3], false)).toEqual([2, 9]);
  expect(extentY([line({})], [0, 1], false)).toBeUndefined();
  expect(extentX([])).toBeUndefined();
  expect(extentX([line({ xs: [45], ys: [1] })])).toEqual([0, 45]);
  expect(extentX([line({ xs: [900, 1000], ys: [1, 2] })])).toEqual([900, 1000]);
  const [low, high] = padded([3, 3], false);
  expect(low).toBeLessThan(3);
  expect(high).toBeGreaterThan(3);
});

const curve: Envelope = {
  trial_id: 3, group: "validation", name: "loss", steps: [1, 11, 21], ends: [10, 20, 30], epochs: [1, 2, null], seconds: [5, 4, 9],
  min: [0.5, 0.4, null], mean: [0.6, 0.5, null], max: [0.7, 0.9, null], odd: [{ steps: 25, value: "NaN" }], shown: 3, points: 30, total: 90, is_sampled: false,
};

test("a curve becomes a line along batches, epochs or time", () => {
  const look = { name: "loss", color: "#123", dash: [], bestStep: 15 };
  const byBatch = toLine(curve, look, "batch");
  expect([byBatch.xs, byBatch.highs, byBatch.odd, byBatch.bestX]).toEqual([[10, 20, 30], [0.7, 0.9, null], [{ x: 25, value: "NaN" }], 15]);
  // Without an epoch there is no place for a point.
  expect(toLine(curve, look, "epoch").xs).toEqual([1, 2]);
  // Time never runs backwards.
  const byTime = toLine(curve, look, "time");
  expect([byTime.xs, byTime.steps]).toEqual([[5, 9], [10, 30]]);
  expect(toLine({ ...curve, points: 3 }, look, "batch").lows).toBeUndefined();
});

test("zooming asks for the steps that are shown and one bucket beyond", () => {
  expect(stepsOf([curve], "batch", [22, 24])).toEqual({ first: 11, last: 30 });
  expect(stepsOf([curve], "batch", [90, 99])).toBeUndefined();
  expect(stepsOf([curve], "epoch", [1.2, 1.4])).toEqual({ first: 1, last: 20 });
  expect([isCoarse([curve]), isCoarse([{ ...curve, points: 3 }])]).toEqual([true, false]);
});

const series = (group: string, name: string, chart: string): Series => ({ group, name, chart, points: 1, trials: 1, is_sampled: false });

test("the searcher metric's chart comes first, custom groups last, validation before training", () => {
  const found = charts(
    [series("training", "lr", "lr"), series("other", "a", "a"), series("training", "loss", "loss"), series("validation", "val_loss", "loss"), series("validation", "accuracy", "accuracy")],
    "val_loss",
  );
  expect(found.map((chart) => chart.name)).toEqual(["loss", "accuracy", "lr", "a"]);
  expect(found[0]?.series.map((one) => one.name)).toEqual(["val_loss", "loss"]);
});

test("a legend names groups, and names where a group has several", () => {
  const all = [series("validation", "v_loss", "loss"), series("training", "loss", "loss"), series("training", "t_loss", "loss")];
  expect(all.map((one) => seriesName(one, all))).toEqual(["validation", "training loss", "training t_loss"]);
});

test("CSV holds full values, quotes what needs it, and no spreadsheet runs it", () => {
  expect(toCsv(["a", "b"], [['x,"y"', 0.1 + 0.2], ["=1+1", -2], [null, undefined]])).toBe('a,b\n"x,""y""",0.30000000000000004\n\'=1+1,-2\n,\n');
  const one = line({ xs: [1, 3], ys: [5, null], steps: [1, 3], odd: [{ x: 2, value: "NaN" }] });
  expect(linesCsv([one], "epochs").split("\n")).toEqual(["trial,series,batches,epochs,value,min,max", "1,loss,1,1,5,,", "1,loss,,2,NaN,,", "1,loss,3,3,,,", ""]);
  expect(linesCsv([one], "batches").split("\n")).toEqual(["trial,series,batches,value,min,max", "1,loss,1,5,,", "1,loss,2,NaN,,", "1,loss,3,,,", ""]);
});

test("charts are found by a regular expression, and by plain text while it is none yet", () => {
  const all = charts([series("training", "loss", "loss"), series("training", "f(x)", "f(x)")], null);
  expect(namesLike(all, "^LO|x$").shown.map((chart) => chart.name)).toEqual(["loss"]);
  const typed = namesLike(all, "f(");
  expect([typed.shown.map((chart) => chart.name), Boolean(typed.problem)]).toEqual([["f(x)"], true]);
  expect(namesLike(all, " ").shown).toHaveLength(2);
});

test("sizes have round marks in powers of 1024, and amounts say what they are", () => {
  expect(byteTicks([0, 3.5 * 1024 ** 3], 4)).toEqual([0, 1, 2, 3].map((many) => many * 1024 ** 3));
  expect(byteTicks([0, 1000], 3)).toEqual([0, 500, 1000]);
  expect([amounts.bytes.mark(2 * 1024 ** 3), amounts.bytesPerSecond.text(1536), amounts.percent.text(12.345), amounts.perSecond.mark(20_000), amounts.bytes.mark(-2048)]).toEqual(["2 GiB", "1.5 KiB/s", "12.3 %", "20k/s", "−2 KiB"]);
});
