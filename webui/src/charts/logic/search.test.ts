import { expect, test } from "vitest";
import { axisOf, cells, pairs } from "./bins";
import { ladder } from "./rungs";
import type { Found, Parameter, Result } from "./search";
import { best, brushed, drawOrder, foundOf, goodness, metricAxis, placeOn, usualParameters } from "./search";

const lr: Parameter = { name: "lr", kind: "log", categories: [], isWhole: false, importance: 0.6 };
const act: Parameter = { name: "act", kind: "category", categories: ["relu", "gelu", "true"], isWhole: false, importance: 0.1 };
const trial = (trialId: number, values: Record<string, unknown>, metric: number | null): Result => ({ trialId, name: `trial ${trialId}`, values, metric });
const found: Found = {
  metric: { name: "validation.loss", smallerIsBetter: true },
  parameters: [lr, act],
  results: [trial(1, { lr: 0.01, act: "relu" }, 0.2), trial(2, { lr: 0.1, act: "gelu" }, 0.5), trial(3, { lr: 0.001, act: "relu" }, null), trial(4, { lr: 0.001, act: true }, 0.4)],
};

const answer = (is_log: boolean, value: number) =>
  foundOf({
    metric: "m", smaller_is_better: true, trials_total: 1, is_uncertain: false, said: "", steps: null,
    hyperparameters: [{ name: "lr", categories: [], is_log, is_whole: false, importance: null }],
    results: [{ trial_id: 1, hparams: { lr: value }, value: "NaN", batches: 1, state: "COMPLETED", is_stopped: false }],
  });

test("P-97: a log parameter has a log axis, unless a value has no place on one", () => {
  expect(answer(true, 0.1).parameters[0]?.kind).toBe("log");
  expect(answer(true, 0).parameters[0]?.kind).toBe("linear");
  expect(answer(false, 0.1).parameters[0]?.kind).toBe("linear");
  expect(answer(true, 0.1).results[0]?.metric).toBeNull();
});

test("values find their place: numbers as they are, categories by index", () => {
  expect([placeOn(lr, 0.1), placeOn(lr, 0), placeOn(act, "gelu"), placeOn(act, true), placeOn(act, "tanh"), placeOn(lr, undefined)]).toEqual([0.1, undefined, 1, 2, undefined, undefined]);
});

test("brushes on several axes hold together, spans of one axis either way", () => {
  expect(brushed(found, {})).toBeUndefined();
  expect([...(brushed(found, { lr: [[0.005, 0.2]] }) ?? [])]).toEqual([1, 2]);
  expect([...(brushed(found, { lr: [[0.005, 0.02], [0.05, 0.2]], act: [[-0.4, 0.4]] }) ?? [])]).toEqual([1]);
  // A trial without a metric is outside of any span of it.
  expect([...(brushed(found, { [metricAxis]: [[0, 1]] }) ?? [])]).toEqual([1, 2, 4]);
  expect([...(brushed(found, { gone: [[0, 1]] }) ?? [])]).toEqual([1, 2, 3, 4]);
});

test("the best is the best, and goodness is not spoiled by one that diverged", () => {
  expect(best(found)?.trialId).toBe(1);
  expect(best({ ...found, metric: { ...found.metric, smallerIsBetter: false } })?.trialId).toBe(2);
  expect(drawOrder(found).map((result) => result.trialId)).toEqual([3, 2, 4, 1]);
  const values = [...Array.from({ length: 19 }, (_, at) => at / 18), 1e9];
  const good = goodness(values, true);
  expect([good(0), good(1e9), good(null)]).toEqual([1, 0, 0]);
  expect(good(0.5)).toBeGreaterThan(0.3);
  expect(goodness([3], false)(3)).toBe(1);
});

test("at first the ten that matter most are shown, in their own order", () => {
  const many = Array.from({ length: 12 }, (_, at): Parameter => ({ ...lr, name: `p${at}`, importance: at < 2 ? null : at }));
  expect(usualParameters(many)).toEqual(many.slice(2).map((one) => one.name));
});

test("numbers fall into bins, even on a log axis, and categories stay", () => {
  const results = Array.from({ length: 40 }, (_, at) => trial(at, { lr: 10 ** (-4 + at / 10) }, 1));
  const axis = axisOf(lr, results);
  expect(axis.labels).toHaveLength(8);
  expect([axis.binOf(1e-4), axis.binOf(10 ** -0.1), axis.binOf("x")]).toEqual([0, 7, -1]);
  expect(axisOf(lr, found.results).labels).toEqual(["0.001", "0.01", "0.1"]);
  expect(axisOf(act, found.results).labels).toEqual(act.categories);
});

test("a cell holds the mean and the best of its trials; trials without a metric are in none", () => {
  const made = cells({ ...found, results: [...found.results, trial(5, { lr: 0.01, act: "relu" }, 0.4)] }, lr, act);
  const first = made.cells.find((cell) => cell.trials.includes(1));
  expect([first?.trials, first?.mean, first?.best]).toEqual([[1, 5], expect.closeTo(0.3), 0.2]);
  expect(made.cells.flatMap((cell) => cell.trials).sort()).toEqual([1, 2, 4, 5]);
  expect(pairs(["a", "b", "c"])).toEqual([["a", "b"], ["a", "c"], ["b", "c"]]);
});

const rung = (bracket: number, place: number, values: (number | null)[], stopped: number[]) => ({
  bracket, rung: place, units: `${4 ** place} epochs`, arrived: values.length, passed: values.length - stopped.length, stopped: stopped.length, waiting: 0, best: null,
  trials: values.map((value, at) => ({ trial_id: at + 1, value, is_stopped_here: stopped.includes(at + 1), is_waiting: false })),
});

test("the highest rung is on top, dots are sorted by value, and those that were stopped are hollow", () => {
  const made = ladder([rung(0, 0, [0.5, 0.9, null, 0.7], [1, 3]), rung(0, 1, [0.95], [])], 400, false);
  expect(made.rows.map((row) => [row.label, row.said])).toEqual([["4 epochs", "1 reached the top"], ["1 epochs", "2 of 4 went on"]]);
  expect(made.rows[1]?.dots.map((dot) => [dot.trialId, dot.kind])).toEqual([[2, "passed"], [4, "passed"], [1, "stopped"], [3, "stopped"]]);
  expect(made.rows[0]?.dots[0]?.kind).toBe("there");
});

test("many dots wrap and get smaller, brackets are named where there are several", () => {
  const many = ladder([rung(0, 0, Array.from({ length: 300 }, (_, at) => at), [])], 400, true);
  expect(many.radius).toBe(3);
  expect(new Set(many.rows[0]?.dots.map((dot) => dot.y)).size).toBeGreaterThan(5);
  expect(Math.max(...(many.rows[0]?.dots.map((dot) => dot.x) ?? []))).toBeLessThan(400);
  expect(ladder([rung(0, 0, [1], []), rung(1, 0, [1], [])], 400, true).rows.map((row) => row.bracket)).toEqual(["bracket 0", "bracket 1"]);
});
