import { expect, test } from "vitest";
import { overwritten, plain, segments } from "./ansi";

const texts = (line: string) => segments(line).map((segment) => segment.text);

test("a line without escapes is one piece", () => {
  expect(segments("hello")).toEqual([{ text: "hello", style: {} }]);
  expect(segments("")).toEqual([]);
});

test("colours and weights begin and end where the terminal says", () => {
  expect(segments("a\x1b[1;31mb\x1b[22mc\x1b[0md")).toEqual([
    { text: "a", style: {} },
    { text: "b", style: { bold: true, color: 1 } },
    { text: "c", style: { color: 1 } },
    { text: "d", style: {} },
  ]);
  expect(segments("\x1b[92;103mx")[0]?.style).toEqual({ color: 10, background: 11 });
  expect(segments("\x1b[31mx\x1b[my")[1]?.style).toEqual({});
});

test("colours of 256 and of their own are read, and nonsense ones skipped", () => {
  expect(segments("\x1b[38;5;9mx")[0]?.style).toEqual({ color: 9 });
  expect(segments("\x1b[38;5;196mx")[0]?.style).toEqual({ color: "#ff0000" });
  expect(segments("\x1b[48;5;244mx")[0]?.style).toEqual({ background: "#808080" });
  expect(segments("\x1b[38;2;1;2;255;4mx")[0]?.style).toEqual({ color: "#0102ff", underline: true });
  expect(segments("\x1b[38;2;999;2;3mx")[0]?.style).toEqual({});
  expect(segments("\x1b[38;5;999mx")[0]?.style).toEqual({});
});

test("escapes that are not colours leave nothing behind", () => {
  const hostile = [
    "\x1b[2J\x1b[1;1Ha",
    "\x1b]0;title\x07a",
    "\x1b]8;;javascript:alert(1)\x1b\\a\x1b]8;;\x1b\\",
    "\x1bPq#0;2;0;0;0\x1b\\a",
    "\x1b[?25la\x1b[?25h",
    "\x1b(Ba\x1bc",
    "\x9b31ma\x9d2;t\x9c",
    "\x00\x07\x08a\x7f",
    "\x1b[31;a\x1b[",
  ];
  expect(hostile.slice(0, 8).map((line) => texts(line).join(""))).toEqual(Array(8).fill("a"));
  // A cut escape takes its final byte and no more.
  expect(plain(hostile[8] ?? "")).toBe("");
  expect(plain("\x1b[31mred\x1b[0m\tend")).toBe("red\tend");
});

test("an unfinished escape at the end of a line is dropped", () => {
  for (const line of ["a\x1b", "a\x1b[", "a\x1b[31", "a\x1b]0;never ended"]) expect(plain(line)).toBe("a");
});

test("of a line that was written over, the last text is kept", () => {
  expect(overwritten("10 %\r20 %\r30 %\r")).toBe("30 %");
  expect(overwritten("\r\r")).toBe("");
  expect(texts("\x1b[31m10\r20")).toEqual(["20"]);
});

test("markup stays text", () => {
  expect(texts("<img src=x onerror=alert(1)>")).toEqual(["<img src=x onerror=alert(1)>"]);
});

test("a line of many escapes is read in one pass", () => {
  expect(segments("\x1b[31mx\x1b[32my".repeat(50_000))).toHaveLength(100_000);
  expect(plain("\x1b[".repeat(100_000))).toBe("");
});
