import { expect, test } from "vitest";
import type { Form, Row } from "./form";
import { asKind, flat, formOf, read, readValues, rowsOf } from "./form";

const form = (rows: Row[], more: Partial<Form> = {}): Form => ({
  searcher: "random",
  metric: "loss",
  smallerIsBetter: true,
  maxTrials: "16",
  maxTime: "1000",
  timeMetric: "",
  maxConcurrent: "",
  name: "",
  rows,
  ...more,
});
const row = (name: string, value: unknown): Row => rowsOf({ [name]: value })[0] as Row;

test("nested hyperparameters have names with dots, in order; lists and empty groups are values", () => {
  expect(flat({ z: 1, a: { lr: 0.1, b: { c: [1] } }, e: {} })).toEqual([["a.b.c", [1]], ["a.lr", 0.1], ["e", {}], ["z", 1]]);
});

test("a range is suggested around the value", () => {
  expect(asKind(row("lr", 0.01), "log")).toMatchObject({ kind: "log", base: "10", min: "-3", max: "-1" });
  expect(asKind(row("units", 64), "int")).toMatchObject({ min: "32", max: "128" });
  expect(asKind(row("layers", 0), "int")).toMatchObject({ min: "-1", max: "1" });
  expect(asKind(row("drop", 0.3), "double")).toMatchObject({ min: "0.15", max: "0.6" });
  expect(asKind(row("x", -0.3), "double")).toMatchObject({ min: "-0.6", max: "-0.15" });
  expect(asKind(row("act", "relu"), "categorical").values).toBe("relu");
  expect(asKind(row("nest", true), "categorical").values).toBe("true, false");
});

test("what was typed survives another kind of range, but not where bounds mean something else", () => {
  const typed = { ...asKind(row("units", 64), "int"), min: "10", max: "20" };
  expect(asKind(typed, "double")).toMatchObject({ min: "10", max: "20" });
  expect(asKind(typed, "log").min).not.toBe("10");
});

test("values are words, numbers or any JSON", () => {
  expect(readValues("16, 32,relu")).toEqual([16, 32, "relu"]);
  expect(readValues('[[1, 2], "a,b", null]')).toEqual([[1, 2], "a,b", null]);
  expect(readValues('"16", true')).toEqual(["16", true]);
  expect(readValues("  ")).toEqual([]);
  for (const value of ["relu", "16", "a,b", "true", "two words"]) expect(readValues(asKind(row("x", value), "categorical").values)).toEqual([value]);
  expect(readValues(asKind(row("x", [1, 2]), "categorical").values)).toEqual([[1, 2]]);
});

test("a complete form becomes what the server asks for", () => {
  const rows = [asKind(row("lr", 0.01), "log"), row("batch", 32)];
  expect(read(form(rows, { searcher: "adaptive_asha", name: " wide " }))).toEqual({
    problems: {},
    asked: {
      searcher: "adaptive_asha",
      metric: "loss",
      smaller_is_better: true,
      name: "wide",
      max_trials: 16,
      max_time: 1000,
      time_metric: "batches",
      ranges: [
        { name: "lr", type: "log", minval: -3, maxval: -1, base: 10 },
        { name: "batch", type: "const", val: 32 },
      ],
    },
  });
});

test("nothing is asked while something is missing, and each field says what", () => {
  const lr = { ...asKind(row("lr", 0.01), "double"), min: "1", max: "0.5" };
  const units = { ...asKind(row("units", 64), "int"), min: "1.5" };
  const act = { ...asKind(row("act", "relu"), "categorical"), values: "" };
  const { asked, problems } = read(form([lr, units, act], { maxTrials: "" }));
  expect(asked).toBeUndefined();
  expect(Object.keys(problems).sort()).toEqual(["act.values", "lr.max", "maxTrials", "units.min"]);
  expect(read(form([row("lr", 1)])).problems.rows).toMatch("at least one");
});

test("a grid needs counts and no number of trials", () => {
  const lr = asKind(row("lr", 0.01), "log");
  expect(Object.keys(read(form([lr], { searcher: "grid", maxTrials: "" })).problems)).toEqual(["lr.count"]);
  const { asked } = read(form([{ ...lr, count: "3" }], { searcher: "grid", maxTrials: "" }));
  expect(asked).toMatchObject({ searcher: "grid", ranges: [{ count: 3 }] });
  expect(asked).not.toHaveProperty("max_trials");
});

test("what the server knows becomes a form, and the form says it again", () => {
  const start = {
    searcher: "adaptive_asha" as const,
    metric: "loss",
    smaller_is_better: false,
    max_trials: 8,
    max_time: 500,
    time_metric: "epochs",
    name: "again",
    ranges: [
      { name: "lr", type: "log" as const, minval: -4, maxval: -1, base: 10 },
      { name: "act", type: "categorical" as const, vals: ["relu", "16", [1, 2], null] },
      { name: "batch", type: "const" as const, val: 32 },
      { name: "units", type: "int" as const, minval: 8, maxval: 64, count: 3 },
    ],
  };
  const { asked, problems } = read(formOf(start));
  expect(problems).toEqual({});
  expect(asked?.ranges).toEqual([start.ranges[1], start.ranges[2], start.ranges[0], start.ranges[3]]);
  expect(asked).toMatchObject({ ...start, ranges: expect.anything() });
});
