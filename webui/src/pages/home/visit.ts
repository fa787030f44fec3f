// When somebody last looked. A visit goes on until nobody has looked for half an hour; then the next one begins.
import { remember, remembered } from "../../style/remembered";

export interface Visit {
  /** What ended after this moment is news; undefined at the first visit. */
  since: string | undefined;
  /** When the page was last in sight. */
  seen: string;
}

const pauseBetweenVisits = 30 * 60_000;

/** The visit that goes on at `now`, given the one that was remembered. */
export function current(before: Visit | undefined, now: Date): Visit {
  if (!before) return { since: undefined, seen: now.toISOString() };
  const isNew = now.getTime() - Date.parse(before.seen) > pauseBetweenVisits;
  return { since: isNew ? before.seen : before.since, seen: now.toISOString() };
}

/** Note that somebody looks, and return what is news to them since. */
export function look(): string | undefined {
  const visit = current(remembered<Visit>("visit"), new Date());
  remember("visit", visit);
  return visit.since;
}
