// Colours of terminals as styled pieces of text. Every other escape and control character is dropped: what a program
// prints must not move, hide or write anything on the page.

/** A colour: one of the sixteen of a terminal (the theme says how it looks), or its own as #rrggbb. */
export type Color = number | string;

export interface Style {
  color?: Color;
  background?: Color;
  bold?: boolean;
  faint?: boolean;
  italic?: boolean;
  underline?: boolean;
  strike?: boolean;
  inverse?: boolean;
}

export interface Segment {
  text: string;
  style: Style;
}

// In this order: CSI with its parameters and final byte; OSC, DCS, SOS, PM and APC up to their end (or the line's);
// character sets and other short escapes; control characters but tab.
// eslint-disable-next-line no-control-regex
const escapes = /(?:\x1b\[|\x9b)([0-?]*)[ -/]*([@-~]?)|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?|\x1b[ -/]*[0-~]?|[\x00-\x08\x0a-\x1f\x7f-\x9f]/g;

/** What is left of a line that a progress bar wrote over: the text after the last carriage return that has any. */
export function overwritten(line: string): string {
  if (!line.includes("\r")) return line;
  return line.split("\r").findLast((part) => part !== "") ?? "";
}

/** The line as pieces of equal style. */
export function segments(line: string): Segment[] {
  const text = overwritten(line);
  const found: Segment[] = [];
  let style: Style = {};
  let from = 0;
  const push = (until: number) => {
    if (until <= from) return;
    const piece = text.slice(from, until);
    const last = found.at(-1);
    if (last && last.style === style) last.text += piece;
    else found.push({ text: piece, style });
  };
  for (const match of text.matchAll(escapes)) {
    push(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") style = restyle(style, match[1] ?? "");
  }
  push(text.length);
  return found;
}

/** The line without escapes, for search and copies. */
export const plain = (line: string): string => overwritten(line).replace(escapes, "");

function restyle(now: Style, parameters: string): Style {
  if (!/^[\d;:]*$/.test(parameters)) return now; // private ones, such as ESC[?25m
  const codes = parameters.split(/[;:]/).map(Number);
  let style: Style = { ...now };
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 38 || code === 48) {
      const [color, used] = extended(codes.slice(at + 1));
      if (color !== undefined) style[code === 38 ? "color" : "background"] = color;
      at += used;
    } else style = applied(style, code);
  }
  return style;
}

const on: Record<number, Style> = {
  1: { bold: true },
  2: { faint: true },
  3: { italic: true },
  4: { underline: true },
  7: { inverse: true },
  9: { strike: true },
};
const off: Record<number, (keyof Style)[]> = {
  22: ["bold", "faint"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  29: ["strike"],
  39: ["color"],
  49: ["background"],
};

function applied(style: Style, code: number): Style {
  if (code === 0) return {};
  if (on[code]) return { ...style, ...on[code] };
  const without = off[code];
  if (without) return Object.fromEntries(Object.entries(style).filter(([key]) => !without.includes(key as keyof Style)));
  if (code >= 30 && code <= 37) return { ...style, color: code - 30 };
  if (code >= 90 && code <= 97) return { ...style, color: code - 82 };
  if (code >= 40 && code <= 47) return { ...style, background: code - 40 };
  if (code >= 100 && code <= 107) return { ...style, background: code - 92 };
  return style;
}

/** A colour of 256 (`5;n`) or its own (`2;r;g;b`), and how many numbers it took. */
function extended(rest: number[]): [Color | undefined, number] {
  const [kind, a = 0, b = 0, c = 0] = rest;
  if (kind === 5) return [indexed(a), 2];
  if (kind === 2) return [hex(a, b, c), 4];
  return [undefined, 0];
}

function indexed(place: number): Color | undefined {
  if (place < 0 || place > 255) return undefined;
  if (place < 16) return place;
  if (place >= 232) return hex(8 + (place - 232) * 10, 8 + (place - 232) * 10, 8 + (place - 232) * 10);
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = place - 16;
  return hex(level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6));
}

function hex(...parts: number[]): string | undefined {
  if (parts.some((part) => part < 0 || part > 255)) return undefined;
  return `#${parts.map((part) => part.toString(16).padStart(2, "0")).join("")}`;
}
