import { expect, test } from "vitest";
import type { Entry } from "./tree";
import { firstFile, tree } from "./tree";

const files = (...paths: string[]) => paths.map((path) => ({ path, size: path.length }));
const drawn = (entries: Entry[]): unknown[] => entries.map((entry) => (entry.kind === "file" ? entry.name : { [entry.name]: drawn(entry.children) }));

test("folders come before files, each in order of names", () => {
  expect(drawn(tree(files("b.py", "a.py", "z/one.py", "c/two.py", "c/d.py")))).toEqual([{ c: ["d.py", "two.py"] }, { z: ["one.py"] }, "a.py", "b.py"]);
});

test("a folder with only a folder is one line", () => {
  expect(drawn(tree(files("src/model/net.py", "src/model/data.py", "x.py")))).toEqual([{ "src/model": ["data.py", "net.py"] }, "x.py"]);
  expect(tree(files("a/b/c.py"))[0]?.path).toBe("a/b");
});

test("odd paths are shown as they are named", () => {
  expect(drawn(tree(files("<b>.py", "..", "//", "a//b")))).toEqual([{ a: ["b"] }, "..", "<b>.py"]);
  expect(tree([])).toEqual([]);
});

test("the first file shown is the one that trains", () => {
  expect(firstFile(files("README.md", "data.py", "train.py"))).toBe("train.py");
  expect(firstFile(files("lib/a.py", "README.md"))).toBe("README.md");
  expect(firstFile(files("lib/a.txt"))).toBe("lib/a.txt");
  expect(firstFile([])).toBeUndefined();
});
