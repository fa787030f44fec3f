// @vitest-environment jsdom
import { expect, test, vi } from "vitest";

import { address, here, navigate } from "./router";
import { flag, integer, integers, json, list, number, oneOf } from "./codecs";
import { withValue } from "./query";
import { fit, match } from "./table";

test("paths find their page and its parameters", () => {
  expect(match("/")).toEqual({ page: "home", params: {} });
  expect(match("/experiments/")).toEqual({ page: "experiments", params: {} });
  expect(match("/experiments/7")).toEqual({ page: "experiment", params: { id: "7" } });
  expect(match("/trials/12/logs")).toEqual({ page: "trial", params: { id: "12", tab: "logs" } });
  expect(fit("/files/:name", "/files/a%2Fb%20c")).toEqual({ name: "a/b c" });
});

test("a path nobody owns has no page", () => {
  for (const path of ["/nowhere", "/experiments/seven", "/trials/1/logs/more", "/models/%E0%A4%A"]) expect(match(path)).toBeUndefined();
});

test("what a codec writes it reads back, and nonsense is undefined", () => {
  expect(list.parse(list.format(["a,b", "c\\", "", "é"]))).toEqual(["a,b", "c\\", "", "é"]);
  expect(list.parse("")).toEqual([]);
  expect(integers.parse("3,x,5")).toEqual([3, 5]);
  expect([integer.parse("7"), integer.parse("7.5"), number.parse("7.5"), number.parse(" ")]).toEqual([7, undefined, 7.5, undefined]);
  expect([flag.parse("1"), flag.parse("yes"), oneOf("log", "linear").parse("cube")]).toEqual([true, undefined, undefined]);
  const pair = json((value): value is number[] => Array.isArray(value));
  expect([pair.parse("[1,2]"), pair.parse("{"), pair.parse("3")]).toEqual([[1, 2], undefined, undefined]);
});

test("setting one key keeps the others, and the default leaves none behind", () => {
  expect(withValue("?sort=lr&x=1", "sort", "loss")).toBe("?sort=loss&x=1");
  expect(withValue("?sort=lr", "sort", undefined)).toBe("");
  expect(address("/trials", { q: "a b", page: undefined, tab: "" })).toBe("/trials?q=a+b");
});

test("moving changes the place; replacing leaves no step behind", () => {
  vi.stubGlobal("scrollTo", () => undefined); // jsdom has none
  const steps = window.history.length;
  navigate("/experiments/7?tab=x");
  expect(here()).toEqual({ path: "/experiments/7", search: "?tab=x" });
  navigate("/experiments/7?tab=y", { replace: true });
  expect([window.history.length - steps, here().search]).toEqual([1, "?tab=y"]);
});
