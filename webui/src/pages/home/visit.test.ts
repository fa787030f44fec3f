import { expect, test } from "vitest";
import { current } from "./visit";

const at = (minutes: number) => new Date(Date.UTC(2026, 0, 1, 12, minutes));

test("reloading does not turn news into old news; coming back after a pause does", () => {
  const first = current(undefined, at(0));
  expect(first.since).toBeUndefined();
  const reload = current(first, at(10));
  expect(reload.since).toBeUndefined();
  const later = current(reload, at(60));
  expect(later.since).toBe(at(10).toISOString());
  expect(current(later, at(80)).since).toBe(at(10).toISOString());
});
