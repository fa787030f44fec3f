// How a value is written into the query of an address and read back. What cannot be read becomes undefined: an old or
// mistyped link shows the default, never an error.
export interface Codec<T> {
  parse(text: string): T | undefined;
  format(value: T): string;
}

export const text: Codec<string> = { parse: (value) => value, format: (value) => value };

export const number: Codec<number> = {
  parse: (value) => (value.trim() !== "" && Number.isFinite(Number(value)) ? Number(value) : undefined),
  format: String,
};

export const integer: Codec<number> = {
  parse: (value) => (/^-?\d+$/.test(value) ? Number(value) : undefined),
  format: String,
};

export const flag: Codec<boolean> = {
  parse: (value) => (value === "1" ? true : value === "0" ? false : undefined),
  format: (value) => (value ? "1" : "0"),
};

/** One of the given words. */
export function oneOf<T extends string>(...words: readonly T[]): Codec<T> {
  return { parse: (value) => words.find((word) => word === value), format: (value) => value };
}

/** A list of strings, joined by commas; a comma or backslash inside an item is escaped. */
export const list: Codec<string[]> = {
  parse(value) {
    if (value === "") return [];
    const items = [""];
    for (const [, escaped, comma, plain] of value.matchAll(/\\(.)|(,)|([^\\,]+)/gs)) {
      if (comma) items.push("");
      else items[items.length - 1] += escaped ?? plain ?? "";
    }
    return items;
  },
  format: (items) => items.map((item) => item.replace(/[\\,]/g, "\\$&")).join(","),
};

/** A list of whole numbers such as ids. */
export const integers: Codec<number[]> = {
  parse: (value) => (value === "" ? [] : value.split(",").map(Number).filter(Number.isInteger)),
  format: (items) => items.join(","),
};

/** Anything JSON holds, for what has no shorter form; `check` refuses shapes it does not know. */
export function json<T>(check: (value: unknown) => value is T): Codec<T> {
  return {
    parse(value) {
      try {
        const read: unknown = JSON.parse(value);
        return check(read) ? read : undefined;
      } catch {
        return undefined;
      }
    },
    format: (value) => JSON.stringify(value),
  };
}
