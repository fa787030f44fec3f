import { expect, test } from "vitest";
import type { Chosen } from "./verbs";
import { acts, apply } from "./verbs";

const run = (id: number, state: string, more: Partial<Chosen> = {}): Chosen => ({ id, state, unmanaged: false, archived: false, ...more });
const act = (verb: string, kind: "experiments" | "trials" = "experiments") => acts(kind).find((one) => one.verb === verb)!;

test("an action applies to those runs that allow it", () => {
  const runs = [run(1, "ACTIVE"), run(2, "PAUSED"), run(3, "COMPLETED"), run(4, "RUNNING", { unmanaged: true })];
  const fits = (verb: string) => apply(act(verb), runs).fitting.map(({ id }) => id);
  expect([fits("pause"), fits("activate"), fits("cancel"), fits("archive"), fits("delete")]).toEqual([[1], [2], [1, 2], [3], [3]]);
});

test("P-98: what needs a scheduler is refused for runs that were started by hand, with the reason", () => {
  const mine = [run(1, "RUNNING", { unmanaged: true })];
  for (const verb of ["pause", "activate", "cancel", "kill"]) expect(apply(act(verb), mine).reason).toContain("started by hand");
  expect(apply(act("kill", "trials"), mine).reason).toContain("started by hand");
  expect(apply(act("stop", "trials"), mine).reason).toBe("");
});

test("the reason is the one that most runs give", () => {
  expect(apply(act("pause"), [run(1, "COMPLETED"), run(2, "ERROR"), run(3, "PAUSED")])).toEqual({ fitting: [], reason: "It has ended." });
  expect(apply(act("archive"), [run(1, "COMPLETED", { archived: true })]).reason).toBe("It is archived already.");
});

test("each action that loses something says what and how many", () => {
  const asking = [...acts("experiments"), ...acts("trials")].filter(({ lost }) => lost).map(({ verb }) => verb);
  expect(asking).toEqual(["cancel", "kill", "delete", "stop", "kill"]);
  expect(act("kill").lost!(3, "experiment")).toContain("3 experiments will end at once");
});
