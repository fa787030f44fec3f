import { expect, test } from "vitest";
import type { Metric } from "./metrics";
import { sorted, telling } from "./metrics";

const metric = (group: string, name: string) => ({ group, name }) as Metric;
const metrics = [metric("training", "batches"), metric("cpu", "cpu_util"), metric("training", "loss"), metric("mine", "x"), metric("validation", "accuracy"), metric("validation", "loss")];

test("the searcher metric comes first, what only counts or is about the machine last", () => {
  const names = sorted({ metrics, searcher_metric: "loss" }).map((one) => `${one.group} ${one.name}`);
  expect(names).toEqual(["validation loss", "validation accuracy", "training loss", "mine x", "training batches", "cpu cpu_util"]);
});

test("columns are those that say something, or any where there are none", () => {
  expect(telling({ metrics, searcher_metric: null }, 2).map((one) => one.name)).toEqual(["accuracy", "loss"]);
  expect(telling({ metrics: metrics.slice(0, 2), searcher_metric: null }, 4).map((one) => one.name)).toEqual(["batches", "cpu_util"]);
});
