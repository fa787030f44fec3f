import { expect, test } from "vitest";
import { ago, bytes, count, duration, exact, listed, moment, nextTick, percent, plural, short, toNumber, utc } from ".";

test("numbers are shown with four significant digits, whole ones in full", () => {
  const shown = [0.991234, 12.3456, 1234.56, 12345.67, 0, -0.5, 1234567, 0.00001234, 0.0001, 1.5e12].map((value) => short(value));
  expect(shown).toEqual(["0.9912", "12.35", "1235", "12,346", "0", "−0.5", "1,234,567", "1.234e-5", "0.0001", "1.5e12"]);
});

test("what is no number has a sign of its own", () => {
  expect([Number.NaN, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY].map((value) => short(value))).toEqual(["NaN", "∞", "−∞"]);
  expect(exact(0.1 + 0.2)).toBe("0.30000000000000004");
  expect(toNumber("NaN")).toBeNaN();
  expect(toNumber("-Infinity")).toBe(Number.NEGATIVE_INFINITY);
  expect([toNumber(null), toNumber("cat"), toNumber("")]).toEqual([undefined, undefined, undefined]);
});

test("progress never claims to be complete, nor not begun, too early", () => {
  expect([0, 0.001, 0.583, 0.999, 1].map(percent)).toEqual(["0 %", "1 %", "58 %", "99 %", "100 %"]);
});

test("sizes go up in powers of 1024 and never read 1024.0", () => {
  const sizes = [0, 1023, 1024, 1536, 1024 ** 2 - 1, 200 * 1024, 3.2 * 1024 ** 3];
  expect(sizes.map(bytes)).toEqual(["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB", "200 KiB", "3.2 GiB"]);
});

test("lengths of time have at most two units", () => {
  const lengths = [0.42, 9.99, 12, 59.6, 250, 3600, 7500, 273600, Number.NaN];
  expect(lengths.map(duration)).toEqual(["0.4 s", "10 s", "12 s", "1 min", "4 min 10 s", "1 h", "2 h 5 min", "3 d 4 h", "–"]);
});

test("times are told as how long ago, then as a date", () => {
  const now = moment("2026-03-01T12:00:00Z");
  const before = (seconds: number) => ago(now - seconds * 1000, now);
  expect([1, 12, 250, 7500, 3 * 86400, 40 * 86400].map(before)).toEqual([
    "just now",
    "12 s ago",
    "4 min ago",
    "2 h ago",
    "3 d ago",
    "2026-01-20",
  ]);
  expect(ago(now + 90_000, now)).toBe("in 1 min");
  expect([nextTick(now - 5000, now), nextTick(now - 90_000, now)]).toEqual([1000, 20_000]);
});

test("a time without a zone is UTC", () => {
  expect(utc(moment("2026-03-01T12:30:05.123456"))).toBe("2026-03-01 12:30:05 UTC");
  expect(moment("2026-03-01T14:30:05+02:00")).toBe(moment("2026-03-01T12:30:05Z"));
});

test("counts agree with their nouns", () => {
  expect([plural(1, "trial"), plural(1204, "trial"), plural(2, "query", "queries"), count(-1200)]).toEqual([
    "1 trial",
    "1,204 trials",
    "2 queries",
    "−1,200",
  ]);
  expect([listed([]), listed(["a"]), listed(["a", "b", "c"])]).toEqual(["", "a", "a, b and c"]);
});
