// Numbers as people read them: four significant digits, the full value elsewhere (hover, copies, CSV).

/** A value that JSON could not hold arrives as text: "NaN", "Infinity", "-Infinity". */
export type Numeric = number | string | null | undefined;

export function toNumber(value: Numeric): number | undefined {
  if (value === null || value === undefined || value === "") return undefined;
  const read = typeof value === "number" ? value : Number(value);
  if (!Number.isNaN(read)) return read;
  return typeof value === "number" || /^[-+]?nan$/i.test(value) ? Number.NaN : undefined;
}

function special(value: number): string | undefined {
  if (Number.isNaN(value)) return "NaN";
  if (value === Number.POSITIVE_INFINITY) return "∞";
  if (value === Number.NEGATIVE_INFINITY) return "−∞";
  return undefined;
}

/** Four significant digits (or `digits`): 0.9912, 12.35, 1.234e-5, 1,234,568 for whole numbers. */
export function short(value: number, digits = 4): string {
  const word = special(value);
  if (word) return word;
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return count(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e9)) return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
  const rounded = Number(value.toPrecision(digits));
  return Math.abs(rounded) >= 10 ** digits ? count(Math.round(value)) : String(rounded).replace("-", "−");
}

/** The whole value, as copies and hovers show it. */
export const exact = (value: number): string => special(value) ?? String(value);

/** A whole number with thin groups: 12,345. */
export function count(value: number): string {
  const text = Math.abs(value).toLocaleString("en-US", { maximumFractionDigits: 0 });
  return value < 0 ? `−${text}` : text;
}

/** A share of one as per cent: 0.583 -> "58 %". Never 100 before it is complete, nor 0 once it began. */
export function percent(share: number): string {
  const whole = share >= 1 ? 100 : share <= 0 ? 0 : Math.min(99, Math.max(1, Math.round(share * 100)));
  return `${whole} %`;
}
