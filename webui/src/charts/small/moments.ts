// Where the moments of a trial's life lie on its strip.
import type { components } from "../../api";
import { moment as read } from "../../format";

export type Moment = components["schemas"]["Moment"];
export interface Mark {
  /** Share of the strip, 0 to 1. */
  at: number;
  kind: Moment["kind"];
  /** Everything that happened here, one line each. */
  said: string[];
  time: string;
}
export interface Piece {
  from: number;
  to: number;
  attempt: number;
}

/** Marks that would touch are one mark, of the kind that matters most. */
const weight: Record<Moment["kind"], number> = { end: 4, state: 3, attempt: 2, checkpoint: 1, validation: 0 };

export function span(moments: readonly Moment[], now: number): [number, number] {
  const times = moments.map((one) => read(one.time));
  const from = Math.min(...times);
  const isOver = moments.some((one) => one.kind === "end");
  const to = Math.max(...times, isOver ? from : now);
  return [from, to > from ? to : from + 1];
}

/** Marks of a strip `width` pixels wide; those nearer than `least` pixels are joined. */
export function marks(moments: readonly Moment[], now: number, width: number, least = 8): Mark[] {
  if (!moments.length) return [];
  const [from, to] = span(moments, now);
  const found: Mark[] = [];
  for (const one of moments) {
    const at = (read(one.time) - from) / (to - from);
    const last = found.at(-1);
    if (last && (at - last.at) * width < least) {
      last.said.push(one.said);
      if (weight[one.kind] > weight[last.kind]) last.kind = one.kind;
    } else found.push({ at, kind: one.kind, said: [one.said], time: one.time });
  }
  return found;
}

/** The pieces of the strip in which a process ran: one per attempt. */
export function pieces(moments: readonly Moment[], now: number): Piece[] {
  if (!moments.length) return [];
  const [from, to] = span(moments, now);
  const share = (time: number) => (time - from) / (to - from);
  const starts = moments.filter((one) => one.kind === "attempt").map((one) => share(read(one.time)));
  const first = starts[0] ?? 0;
  return (starts.length ? starts : [first]).map((start, place, all) => ({ from: start, to: all[place + 1] ?? 1, attempt: place + 1 }));
}
