// @vitest-environment jsdom
import { expect, test } from "vitest";
import { lineErrors, verdict } from "./Checks";
import { readMetadata } from "./ModelEditDialog";

const fine = { is_fine: true, problems: [], warnings: [], preview: [], trials: null, said: "Experiment 4 can be continued." };

test("what would be trained is counted, and what cannot be is said", () => {
  const preview = [
    { trials: 12, units: "5 epochs" },
    { trials: 4, units: "20 epochs" },
  ];
  expect(verdict({ ...fine, preview, trials: 16 })).toBe("Would train 16 trials: 12 × 5 epochs, 4 × 20 epochs.");
  expect(verdict({ ...fine, preview: [{ trials: 1, units: "train to completion" }], trials: 1 })).toBe("Would train 1 trial to completion.");
  expect(verdict({ ...fine, preview: [{ trials: 8, units: "20 epochs" }], trials: 8 })).toBe("Would train 8 trials, 20 epochs each.");
  expect(verdict(fine)).toBe("Experiment 4 can be continued.");
  expect(verdict({ ...fine, is_fine: false, problems: [{ line: 3, path: "<config>.a", reason: "wrong" }] })).toMatch("1 problem");
});

test("a problem names its place, and stands at its line", () => {
  const problems = [
    { line: 8, path: "<config>.searcher.metric", reason: "is missing." },
    { line: 3, path: "<config>.hyperparameters.lr", reason: "hyperparameters.lr is a text." },
    { line: null, path: "<config>", reason: "<config>: line 2, column 2: did not find expected ','." },
  ];
  expect(lineErrors({ ...fine, is_fine: false, problems })).toEqual([
    { line: null, message: "line 2, column 2: did not find expected ','." },
    { line: 3, message: "hyperparameters.lr is a text." },
    { line: 8, message: "searcher.metric is missing." },
  ]);
  expect(lineErrors(undefined)).toEqual([]);
});

test("metadata is an object, or a sentence says why not", () => {
  expect(readMetadata(' {"a": [1]} ')).toEqual({ value: { a: [1] }, problem: "" });
  expect(readMetadata("")).toEqual({ value: {}, problem: "" });
  expect(readMetadata("[1]").problem).toMatch("JSON object");
  expect(readMetadata("{a}").problem).toMatch("not JSON");
});
