// What a person types as the value of a condition, by the type of its column.
import type { ColumnType } from "../types";
import type { Value } from "./filter";

const seconds: Record<string, number> = { s: 1, sec: 1, m: 60, min: 60, h: 3600, hour: 3600, d: 86400, day: 86400, w: 604800 };
const sizes: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };

function measured(text: string, unit: (word: string) => number | undefined): number | undefined {
  let sum = 0;
  let rest = text.trim();
  if (rest === "") return undefined;
  while (rest !== "") {
    const part = /^(\d+(?:\.\d+)?(?:e[-+]?\d+)?)\s*([a-z]*)\s*/i.exec(rest);
    const size = part && unit(part[2]!.toLowerCase());
    if (!part || size === undefined || size === null) return undefined;
    sum += Number(part[1]) * size;
    rest = rest.slice(part[0].length);
  }
  return sum;
}

/** "90", "10 min" or "2 h 30 min" as seconds. */
export function readDuration(text: string): number | undefined {
  return measured(text, (word) => (word === "" ? 1 : (seconds[word] ?? seconds[word.replace(/s$/, "")])));
}

/** "512", "1.5 GiB" or "20 MB" as bytes; both spellings mean powers of 1024, as everywhere here. */
export function readBytes(text: string): number | undefined {
  const size = measured(text, (word) => (/^([kmgt]?i?b?)?$/.test(word) ? sizes[word[0] ?? "b"] : undefined));
  return size === undefined ? undefined : Math.round(size);
}

/** What is no number is a word, as everywhere in answers. */
function odd(text: string): string | undefined {
  const found = /^\s*([-+]?)(nan|inf(?:inity)?)\s*$/i.exec(text);
  if (!found) return undefined;
  return /nan/i.test(found[2]!) ? "NaN" : found[1] === "-" ? "-Infinity" : "Infinity";
}

/** The value that `text` means in a column of this type, or undefined when it means none. */
export function readValue(text: string, type: ColumnType): Value | undefined {
  if (type === "duration") return readDuration(text);
  if (type === "bytes") return readBytes(text);
  if (type === "boolean") return text === "true" ? true : text === "false" ? false : undefined;
  if (type === "number") return odd(text) ?? (text.trim() !== "" && Number.isFinite(Number(text)) ? Number(text) : undefined);
  return text === "" ? undefined : text;
}

export const hints: Partial<Record<ColumnType, string>> = {
  number: "0.01",
  duration: "10 min",
  bytes: "1.5 GiB",
  text: "text",
  labels: "label",
};
