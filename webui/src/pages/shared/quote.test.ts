import { expect, test } from "vitest";
import { quote } from "./quote";

test("a name is one word of a shell, and nothing in it is run", () => {
  expect(quote("digits-net.v2")).toBe("digits-net.v2");
  expect(quote("two words")).toBe("'two words'");
  expect(quote("$(rm -rf ~) `x` \"y\"")).toBe("'$(rm -rf ~) `x` \"y\"'");
  expect(quote("it's")).toBe("'it'\\''s'");
  expect(quote("")).toBe("''");
});
