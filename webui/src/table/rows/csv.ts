// The view as CSV: full values, not the rounded ones on screen.

function field(value: unknown): string {
  if (value === null || value === undefined) return "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  const text = Array.isArray(value) ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value);
  // A spreadsheet would run text that begins like a formula; numbers that are text (NaN, -Infinity) are harmless.
  const safe = /^[=+@\t\r]|^-(?!Infinity$)/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export const csvLine = (values: readonly unknown[]): string => values.map(field).join(",");

/** Heads and rows; lines end as RFC 4180 says. */
export function csv(heads: readonly string[], rows: readonly (readonly unknown[])[]): string {
  return [heads, ...rows].map((row) => `${csvLine(row)}\r\n`).join("");
}
