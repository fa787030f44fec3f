// Values as the page shows them: short in place, exact on hover.
import { useEffect, useState } from "react";
import type { Numeric } from "../format";
import { ago, bytes, duration, exact, moment, nextTick, short, toNumber, utc } from "../format";

/** Four significant digits, tabular; a missing value is a dash. */
export function Num({ value, digits }: { value: Numeric; digits?: number }) {
  const number = toNumber(value);
  if (number === undefined) return <span className="num muted">–</span>;
  return (
    <span className="num" title={exact(number)}>
      {short(number, digits)}
    </span>
  );
}

export function Bytes({ size }: { size: number | null | undefined }) {
  if (size === null || size === undefined) return <span className="num muted">–</span>;
  return (
    <span className="num" title={`${size} bytes`}>
      {bytes(size)}
    </span>
  );
}

/** The clock, re-read as often as a label about `then` can change. */
function useNow(then: number): number {
  const [ticks, tick] = useState(0);
  const now = Date.now();
  useEffect(() => {
    const timer = setTimeout(() => tick(ticks + 1), nextTick(then, Date.now()));
    return () => clearTimeout(timer);
  }, [then, ticks]);
  return now;
}

/** How long ago, from an ISO time; the exact one on hover. Keeps itself current. */
export function Time({ at }: { at: string | null | undefined }) {
  const then = at ? moment(at) : Number.NaN;
  const now = useNow(Number.isNaN(then) ? 0 : then);
  if (Number.isNaN(then)) return <span className="muted">–</span>;
  return (
    <time className="num" dateTime={at ?? ""} title={utc(then)}>
      {ago(then, now)}
    </time>
  );
}

/** A length of time: `seconds`, or since `since` while it runs. */
export function Duration({ seconds, since }: { seconds?: number | null | undefined; since?: string | null | undefined }) {
  const then = since ? moment(since) : 0;
  const now = useNow(then);
  if (since) return <span className="num">{duration((now - then) / 1000)}</span>;
  return <span className="num">{seconds === null || seconds === undefined ? "–" : duration(seconds)}</span>;
}
