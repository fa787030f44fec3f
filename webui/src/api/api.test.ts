import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { url } from "./client";
import { sentence } from "./error";
import type { Change } from "./invalidate";
import { Invalidator, touched } from "./invalidate";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const none: Change = { experiments: [], trials: [], logs: [], other: false };
const names = (change: Partial<Change>) => touched({ ...none, ...change }).map(([key]) => key.join(":"));

test("a change asks again only for what it touches", () => {
  expect(names({ trials: [4] })).toEqual(["trial:4", "table", "home", "queue", "compare"]);
  expect(names({ logs: [4] })).toEqual(["logs:4"]);
  expect(names({ other: true })).toEqual(["table", "home", "queue", "compare", "experiment", "trial", "models", "projects", "tasks", "about"]);
  expect(names({})).toEqual([]);
});

test("nine hundred changes in a second ask for the table once at once and once after", async () => {
  const asked: string[] = [];
  const invalidator = new Invalidator(async (key) => void asked.push(key.join(":")));
  for (let step = 0; step < 900; step += 1) {
    invalidator.change({ ...none, trials: [1] });
    await vi.advanceTimersByTimeAsync(1);
  }
  expect(asked.filter((key) => key === "table")).toHaveLength(1);
  await vi.advanceTimersByTimeAsync(5000);
  expect(asked.filter((key) => key === "table")).toHaveLength(2);
  expect(asked.filter((key) => key === "trial:1").length).toBeLessThanOrEqual(6);
});

test("a slow answer is waited for, and the change that came meanwhile is asked for after it", async () => {
  const answers: (() => void)[] = [];
  const invalidator = new Invalidator(() => new Promise<void>((done) => answers.push(done)));
  invalidator.change({ ...none, logs: [1] });
  await vi.advanceTimersByTimeAsync(10);
  invalidator.change({ ...none, logs: [1] });
  await vi.advanceTimersByTimeAsync(60_000);
  expect(answers).toHaveLength(1);
  answers[0]?.();
  await vi.advanceTimersByTimeAsync(10);
  expect(answers).toHaveLength(2);
});

test("a failed answer does not stop the next question", async () => {
  let asked = 0;
  const invalidator = new Invalidator(async () => {
    asked += 1;
    throw new Error("gone");
  });
  invalidator.change({ ...none, logs: [1] });
  await vi.advanceTimersByTimeAsync(10);
  invalidator.change({ ...none, logs: [1] });
  await vi.advanceTimersByTimeAsync(1000);
  expect(asked).toBe(2);
});

test("addresses fill in their parts, repeat lists and leave out what is missing", () => {
  expect(url("/api/v1/models/{name}", { path: { name: "a/b" } })).toBe("/api/v1/models/a%2Fb");
  expect(url("/api/v1/trials", { query: { id: [1, 2], q: undefined, state: null } })).toBe("/api/v1/trials?id=1&id=2");
});

test("errors read as the server's sentence", () => {
  expect(sentence(404, { detail: "No trial 9." })).toBe("No trial 9.");
  expect(sentence(422, { detail: [{ loc: ["body", "name"], msg: "too long" }] })).toBe("name: too long");
  expect(sentence(500, "oops")).toMatch(/status 500/);
});
