import { expect, test } from "vitest";
import type { Column } from "../types";
import type { Condition, Group } from "./filter";
import { appended, asked, isGroup, none, pruned, replaced } from "./filter";
import { filterText, parseFilter } from "./filtertext";
import { chips, conditionSentence, sentence } from "./sentence";
import { readBytes, readDuration, readValue } from "./values";

const lr: Condition = { column: "hparams.lr", operator: "<", value: 0.01 };
const active: Condition = { column: "run.state", operator: "is", value: "ACTIVE" };
const named: Condition = { column: "run.name", operator: "contains", value: 'my "best" run' };
const empty: Condition = { column: "metrics.validation.loss.min", operator: "is empty" };
const tree: Group = { join: "all", items: [lr, { join: "any", items: [active, { join: "all", items: [named, empty] }] }] };

const column = (key: string, title: string, section: Column["section"], type: Column["type"]): Column => ({
  key,
  title,
  section,
  type,
  operators: ["is"],
  is_shown: true,
});
const columns = new Map(
  [
    column("hparams.lr", "lr", "hparams", "number"),
    column("run.state", "State", "run", "state"),
    column("run.name", "Name", "run", "text"),
    column("run.id", "ID", "run", "number"),
    column("run.seconds", "Duration", "run", "duration"),
    column("run.start", "Started", "run", "time"),
    column("hparams.Drop Out", "Drop Out", "hparams", "boolean"),
  ].map((one) => [one.key, one]),
);

test("a filter in an address is readable and comes back as it was", () => {
  expect(filterText({ join: "all", items: [lr, active] })).toBe("hparams.lr lt 0.01 run.state is ACTIVE");
  expect(new URLSearchParams({ f: filterText({ join: "all", items: [lr] }) }).toString()).toBe("f=hparams.lr+lt+0.01");
  for (const group of [none, tree, { join: "any", items: [active, lr] } as Group]) expect(parseFilter(filterText(group))).toEqual(group);
});

test("text that looks like a number, a word of the form or nothing stays text", () => {
  for (const value of ["0.01", "true", "(", ")", "any(", " ", "1e5", 'a"b\\', "ü ", "lt", "Infinity"]) {
    const group: Group = { join: "all", items: [{ column: "hparams.a b(c)", operator: "is", value }] };
    expect(parseFilter(filterText(group))).toEqual(group);
  }
  expect(parseFilter("a is true b is -1.5e3")?.items).toEqual([
    { column: "a", operator: "is", value: true },
    { column: "b", operator: "is", value: -1500 },
  ]);
});

test("a mistyped address filters nothing, and one that is too deep is refused as the server would", () => {
  for (const text of ["hparams.lr", "hparams.lr less 3", "any( a is 1", "a is 1 )", 'a is "']) expect(parseFilter(text)).toBeUndefined();
  const deep = (levels: number): Group =>
    levels === 0 ? { join: "any", items: [lr, active] } : { join: levels % 2 ? "all" : "any", items: [lr, deep(levels - 1)] };
  expect(parseFilter(filterText(deep(2)))).toEqual(deep(2));
  expect(parseFilter(filterText(deep(3)))).toBeUndefined();
});

test("the builder's changes touch only their place", () => {
  const without = replaced(tree, [1, 0], undefined);
  expect((without.items[1] as Group).items).toHaveLength(1);
  expect(tree.items[1]).toHaveProperty("items.length", 2);
  const more = appended(tree, [1, 1], lr);
  expect(((more.items[1] as Group).items[1] as Group).items.at(-1)).toEqual(lr);
  expect(appended(none, [], lr).items).toEqual([lr]);
  expect(replaced(tree, [0], { ...lr, value: 1 }).items[0]).toMatchObject({ value: 1 });
  expect(replaced(tree, [7], lr)).toEqual(tree);
});

test("unfinished conditions are not asked, and groups of one are their item", () => {
  const unfinished: Condition = { column: "hparams.lr", operator: "<" };
  expect(asked({ join: "any", items: [unfinished, { join: "all", items: [] }] })).toBeNull();
  expect(pruned({ join: "any", items: [{ join: "all", items: [lr, unfinished] }] })).toEqual({ join: "all", items: [lr] });
  expect(pruned({ join: "all", items: [{ join: "any", items: [lr, active] }] })).toEqual({ join: "any", items: [lr, active] });
  expect(pruned({ join: "all", items: [lr, { join: "any", items: [active, unfinished] }] })).toEqual({ join: "all", items: [lr, active] });
  expect(asked(tree)).toEqual({
    all_of: [
      { column: "hparams.lr", operator: "<", value: 0.01 },
      { any_of: [{ column: "run.state", operator: "is", value: "ACTIVE" }, { all_of: [expect.anything(), { ...empty, value: null }] }] },
    ],
  });
  expect(isGroup(tree)).toBe(true);
});

test("chips read as sentences", () => {
  const say = (column: string, operator: Condition["operator"], value?: Condition["value"]) =>
    conditionSentence(value === undefined ? { column, operator } : { column, operator, value }, columns);
  expect(say("hparams.lr", "<", 0.01)).toBe("lr < 0.01");
  expect(say("run.state", "is", "ACTIVE")).toBe("state is ACTIVE");
  expect(say("run.id", ">=", 7)).toBe("ID >= 7");
  expect(say("run.seconds", ">", 600)).toBe("duration > 10 min");
  expect(say("run.start", "after", "2026-01-02")).toBe("started after 2026-01-02");
  expect(say("run.name", "contains", "my run")).toBe('name contains "my run"');
  expect(say("hparams.Drop Out", "is", true)).toBe("Drop Out is yes");
  expect(say("hparams.gone", "is not empty")).toBe("gone is not empty");
  expect(sentence({ join: "any", items: [active, { join: "all", items: [lr, active] }] }, columns)).toBe(
    "state is ACTIVE or (lr < 0.01 and state is ACTIVE)",
  );
});

test("one chip per condition; a root of alternatives is one chip", () => {
  expect(chips({ join: "all", items: [lr, active] }, columns).map(({ place }) => place)).toEqual([0, 1]);
  expect(chips({ join: "any", items: [lr, active] }, columns)).toEqual([{ text: "lr < 0.01 or state is ACTIVE", place: null }]);
});

test("values are read by the type of their column", () => {
  expect([readDuration("90"), readDuration("2 h 30 min"), readDuration("1.5 days"), readDuration("2 parsecs"), readDuration("")]).toEqual([
    90, 9000, 129600, undefined, undefined,
  ]);
  expect([readBytes("512"), readBytes("1.5 GiB"), readBytes("20 MB"), readBytes("3 x")]).toEqual([512, 1610612736, 20971520, undefined]);
  expect([readValue("0.01", "number"), readValue("x", "number"), readValue("0.01", "text"), readValue("true", "boolean")]).toEqual([
    0.01,
    undefined,
    "0.01",
    true,
  ]);
  expect(["nan", "-inf", "Infinity"].map((text) => readValue(text, "number"))).toEqual(["NaN", "-Infinity", "Infinity"]);
});
