// @vitest-environment jsdom
import { expect, test } from "vitest";
import { filtersOf, startOf } from "./useLogQuery";

const none = { isRegex: false, isOnly: false, level: "", rank: undefined, node: "" };

test("a log opens at a line, at a moment, or at its end", () => {
  expect(startOf("?line=12&at=2026-01-01T00:00:00Z")).toEqual({ line: 12 });
  expect(startOf("?at=2026-01-01T00:00:00")).toEqual({ time: "2026-01-01T00:00:00.000Z" });
  expect(startOf("?time=2026-01-01T00:00:00.5Z")).toEqual({ time: "2026-01-01T00:00:00.500Z" });
  expect(startOf("?at=1767225600000")).toEqual({ time: "2026-01-01T00:00:00.000Z" });
  for (const search of ["", "?at=", "?at=yesterday", "?line=x"]) expect(startOf(search)).toBe("end");
});

test("only filters that are set are asked for; a search hides lines only if that is wanted", () => {
  expect(filtersOf(none, "loss")).toEqual({});
  expect(filtersOf({ ...none, level: "ERROR", rank: 0, node: "n1" }, "")).toEqual({ level: "ERROR", rank: [0], node: "n1" });
  expect(filtersOf({ ...none, isOnly: true }, "loss")).toEqual({ text: "loss" });
  expect(filtersOf({ ...none, isOnly: true, isRegex: true }, "l.*s")).toEqual({ regex: "l.*s" });
});
