import { expect, test } from "vitest";
import { byNode, label, place } from "./words";

const free = { experiment_id: null, trial_id: null, attempt: null, state: null };

test("a slot is called by its number on its node", () => {
  expect(label({ id: "one/1", device: "CPU" })).toBe("CPU 1");
  expect(label({ id: "one/0", device: "GPU 0" })).toBe("GPU 0");
  expect(label({ id: "0", device: "CPU" })).toBe("CPU 0");
  expect(label({ id: "four/0", device: "four/0" })).toBe("four/0");
});

test("a node without slots is there", () => {
  const nodes = [{ name: "one", address: "10.0.0.1", slots: 0, slots_used: 0, pools: [] }];
  const groups = byNode([{ id: "two/0", device: "CPU", node: "two", ...free }], nodes);
  expect([...groups].map(([name, own]) => [name, own.length])).toEqual([["one", 0], ["two", 1]]);
});

test("a job whose trials wait for nodes says so, unless others of its trials run", () => {
  const job = { ahead: 0, slots_used: 2, waiting: "Trial 1: It waits." };
  expect(place({ ...job, state: "STARTING" })).toBe("waiting");
  expect(place({ ...job, state: "RUNNING" })).toBe("has slots");
});

test("a job says when it gets slots", () => {
  const job = { ahead: 2, slots_used: 0, state: "QUEUED", waiting: "" };
  expect([job, { ...job, ahead: 0 }, { ...job, slots_used: 1 }, { ...job, state: "PAUSED" }].map(place)).toEqual(["2 ahead", "next", "has slots", "paused"]);
});
