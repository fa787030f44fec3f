// Times and lengths of time. The server sends UTC in ISO form; people read how long ago, and the exact one on hover.

const minute = 60;
const hour = 60 * minute;
const day = 24 * hour;

/** A length of time in at most two units: "0.4 s", "12 s", "4 min 10 s", "2 h 5 min", "3 d 4 h". */
export function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0) return "0 s";
  if (seconds < 9.95) return `${Number(seconds.toFixed(1))} s`;
  const whole = Math.round(seconds);
  if (whole < minute) return `${whole} s`;
  if (whole < hour) return pair(whole, minute, "min", 1, "s");
  if (whole < day) return pair(whole, hour, "h", minute, "min");
  return pair(whole, day, "d", hour, "h");
}

function pair(whole: number, big: number, bigUnit: string, small: number, smallUnit: string): string {
  const rest = Math.floor((whole % big) / small);
  return rest ? `${Math.floor(whole / big)} ${bigUnit} ${rest} ${smallUnit}` : `${Math.floor(whole / big)} ${bigUnit}`;
}

/** How long ago, in one unit: "just now", "12 s ago", "4 min ago", "3 d ago"; older than 30 days, the date. */
export function ago(then: number, now: number): string {
  const seconds = (now - then) / 1000;
  if (seconds < -1) return `in ${single(-seconds)}`;
  if (seconds < 3) return "just now";
  if (seconds > 30 * day) return new Date(then).toISOString().slice(0, 10);
  return `${single(seconds)} ago`;
}

function single(seconds: number): string {
  if (seconds < minute) return `${Math.floor(seconds)} s`;
  if (seconds < hour) return `${Math.floor(seconds / minute)} min`;
  if (seconds < day) return `${Math.floor(seconds / hour)} h`;
  return `${Math.floor(seconds / day)} d`;
}

/** How long until `ago` would read differently, in ms, so that a label need not tick faster than it changes. */
export function nextTick(then: number, now: number): number {
  const seconds = Math.abs(now - then) / 1000;
  return 1000 * (seconds < minute ? 1 : seconds < hour ? 20 : minute * 10);
}

/** The exact moment for a hover: "2026-03-01 12:30:05 UTC". */
export const utc = (then: number): string => `${new Date(then).toISOString().slice(0, 19).replace("T", " ")} UTC`;

/** Milliseconds of an ISO time; without a zone it is UTC, as the store keeps it. */
export function moment(text: string): number {
  return Date.parse(/(Z|[+-]\d\d:?\d\d)$/.test(text) ? text : `${text}Z`);
}
