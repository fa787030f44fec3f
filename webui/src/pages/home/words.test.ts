// @vitest-environment jsdom
import { expect, test } from "vitest";
import { whole } from "../queue/change";
import { ids } from "../tasks";
import { trialsIn } from "./running";

test("trials are counted in the words of their states", () => {
  expect(trialsIn({ trial_count: 1, counts: { RUNNING: 1 } })).toBe("1 trial");
  expect(trialsIn({ trial_count: 16, counts: { COMPLETED: 9, RUNNING: 2, ERROR: 0 } })).toBe("16 trials: 9 done and 2 running");
  expect(trialsIn({ trial_count: 3, counts: { PENDING: 3 } })).toBe("3 trials");
});

test("what is typed into a field of numbers is read or refused", () => {
  expect([whole(" 7 "), whole("7.5"), whole("-1")]).toEqual([7, undefined, undefined]);
  expect([ids("3, 5  8"), ids(""), ids("3 x")]).toEqual([[3, 5, 8], [], undefined]);
});
