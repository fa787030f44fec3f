import { expect, test } from "vitest";
import { foundIn } from "./found";
import type { ComparedTrial, Difference } from "./values";
import { bestOf, different, marked, names, parted, slots, usual, valueText } from "./values";

const trial = (id: number, more: Partial<ComparedTrial> = {}): ComparedTrial => ({
  id,
  experiment_id: 1,
  experiment: "digits",
  state: "COMPLETED",
  batches: 100,
  best_metric: 0.5,
  searcher_metric: "loss",
  smaller_is_better: true,
  checkpoint_count: 1,
  start_time: "2026-01-01T00:00:00Z",
  seconds: 1,
  ...more,
});
const difference = (key: string, values: Record<string, unknown>, section = "metrics"): Difference => ({ section, key, values });

test("values read short, and one that is missing is told from null", () => {
  expect([0.123456, "NaN", "-Infinity", true, null, [1, 2], "adam", undefined].map(valueText)).toEqual(["0.1235", "NaN", "−∞", "true", "null", "[1,2]", "adam", undefined]);
});

test("what most have is the usual, a missing value counts, and the first decides a tie", () => {
  expect(usual(difference("lr", { 1: 0.1, 2: 0.2, 3: 0.2 }), [1, 2, 3])).toBe(0.2);
  expect(usual(difference("lr", { 1: 0.1, 2: 0.2 }), [1, 2])).toBe(0.1);
  expect(usual(difference("lr", { 1: 0.1 }), [1, 2, 3])).toBeUndefined();
  expect(usual(difference("lr", { 1: 0.1, 2: 0.2 }), [1, 2, 3])).toBe(different);
});

test("of long texts only what differs is marked, of the rest the whole", () => {
  expect(parted("/data/a/train", "/data/b/train")).toEqual(["/data/", "a", "/train"]);
  expect(parted("aa", "aaa")).toEqual(["aa", "", ""]);
  expect(marked("/data/imagenet-a/train", "/data/imagenet-b/train")).toEqual(["/data/imagenet-", "a", "/train"]);
  expect(marked(0.1, 0.2)).toEqual(["", "0.1", ""]);
  expect(marked("adam", "sgd")).toEqual(["", "adam", ""]);
});

test("the best value is marked where it is known which way is better", () => {
  const values = { 1: 0.3, 2: 0.2, 3: "NaN" };
  expect([...bestOf(difference("validation.loss.min", values), [trial(1), trial(2), trial(3)])]).toEqual([2]);
  expect([...bestOf(difference("validation.loss.last", values), [trial(1, { smaller_is_better: false })])]).toEqual([1]);
  expect(bestOf(difference("training.loss.min", values), [trial(1)]).size).toBe(0);
  expect(bestOf(difference("validation.accuracy.max", values), [trial(1)]).size).toBe(0);
});

test("things are called as short as they can be told apart", () => {
  expect([...names([trial(1), trial(2)], false).values()]).toEqual(["trial 1", "trial 2"]);
  expect([...names([trial(1), trial(2, { experiment_id: 2, experiment: "mnist" })], false).values()]).toEqual(["trial 1 · digits", "trial 2 · mnist"]);
  expect([...names([trial(5, { experiment_id: 7 })], true).values()]).toEqual(["#7 digits"]);
});

test("each keeps its colour, no two share one before all are used, and then they are dashed", () => {
  expect([...slots([4, 12, 5]).values()]).toEqual([3, 4, 5]);
  const many = [...slots(Array.from({ length: 20 }, (_, place) => place * 8 + 1)).values()];
  expect(new Set(many).size).toBe(20);
  expect(Math.max(...many)).toBeLessThan(24);
  expect(slots([7, 15]).get(7)).toBe(slots([7, 15, 23]).get(7));
});

test("the differing hyperparameters become axes by what their values are", () => {
  const answer = {
    trials: [trial(1), trial(2, { best_metric: "NaN" }), trial(3, { searcher_metric: "accuracy" })],
    differences: [
      difference("lr", { 1: 0.0001, 2: 0.1, 3: 0.01 }, "hparams"),
      difference("layers", { 1: 2, 2: 3 }, "hparams"),
      difference("optimizer", { 1: "sgd", 2: "adam", 3: { name: "x" } }, "hparams"),
      difference("searcher.name", { 1: "a", 2: "b" }, "config"),
    ],
    equal: {},
    hyperparameters: ["lr", "layers", "optimizer"],
  };
  const found = foundIn(answer, [1, 2, 3].map((id) => ({ id, name: `trial ${id}` })));
  expect(found.parameters.map(({ name, kind, isWhole }) => [name, kind, isWhole])).toEqual([["lr", "log", false], ["layers", "linear", true], ["optimizer", "category", false]]);
  expect(found.parameters[2]!.categories).toEqual(["adam", "sgd", '{"name":"x"}'].sort());
  expect(found.results.map(({ metric }) => metric)).toEqual([0.5, null, null]);
  expect(found.results[2]!.values).not.toHaveProperty("layers");
});
