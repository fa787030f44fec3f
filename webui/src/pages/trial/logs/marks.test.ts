import { expect, test } from "vitest";
import { finder, pieces, ranges } from "./marks";

const style = {};
const drawn = (parts: string[], text: string, isRegex = false) => {
  const segments = parts.map((part) => ({ text: part, style }));
  const found = ranges(parts.join(""), finder({ text, isRegex }));
  return pieces(segments, found).map((piece) => (piece.isFound ? `[${piece.text}]` : piece.text));
};

test("text is found whatever its case, and what looks like an expression is text", () => {
  expect(drawn(["a Loss and loss"], "loss")).toEqual(["a ", "[Loss]", " and ", "[loss]"]);
  expect(drawn(["a.b axb"], "a.b")).toEqual(["[a.b]", " axb"]);
});

test("what is found across colours is marked in each of them", () => {
  expect(drawn(["ab", "cd", "ef"], "bcde")).toEqual(["a", "[b]", "[cd]", "[e]", "f"]);
});

test("an expression marks what it finds; empty finds and broken expressions mark nothing", () => {
  expect(drawn(["x1y22"], "\\d+", true)).toEqual(["x", "[1]", "y", "[22]"]);
  expect(drawn(["abc"], "x*", true)).toEqual(["abc"]);
  expect(finder({ text: "(", isRegex: true })).toBeUndefined();
  expect(finder({ text: "(?P<name>a)", isRegex: true })).toBeUndefined();
  expect(drawn(["abc"], "")).toEqual(["abc"]);
});

test("nothing is lost of the text", () => {
  expect(drawn(["aaa", "", "aaa"], "aa").join("").replace(/[[\]]/g, "")).toBe("aaaaaa");
  expect(pieces([], [])).toEqual([]);
});
