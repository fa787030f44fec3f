// From "this changed in the store" to "ask for that again", without storms: each key is asked for at most once per
// interval, and never while the previous question is still open. Pure but for timers, so that tests can watch it.
import type { QueryKey } from "@tanstack/react-query";

/** What the server sends as a `change` event. */
export interface Change {
  experiments: number[];
  trials: number[];
  logs: number[];
  other: boolean;
}

const quick = 250;
const calm = 1000;

/** The query keys a change touches, each with the least time between two questions in ms. */
export function touched(change: Change): [QueryKey, number][] {
  const keys: [QueryKey, number][] = [
    ...change.experiments.map((id): [QueryKey, number] => [["experiment", id], quick]),
    ...change.trials.map((id): [QueryKey, number] => [["trial", id], quick]),
    ...change.logs.map((id): [QueryKey, number] => [["logs", id], quick]),
  ];
  const rows = change.experiments.length + change.trials.length > 0 || change.other;
  if (rows) for (const name of ["table", "home", "queue", "compare"]) keys.push([[name], calm]);
  // An edit (a name, a note, a deleted checkpoint) does not say whose it was.
  if (change.other) for (const name of ["experiment", "trial", "models", "projects", "tasks", "about"]) keys.push([[name], calm]);
  return keys;
}

interface Entry {
  last: number;
  dirty: boolean;
  busy: boolean;
  timer: ReturnType<typeof setTimeout> | undefined;
}

export class Invalidator {
  private entries = new Map<string, Entry>();

  /** `ask` makes everything under a key stale and resolves when it is fresh again. */
  constructor(private ask: (key: QueryKey) => Promise<unknown>) {}

  change(change: Change): void {
    for (const [key, interval] of touched(change)) this.mark(key, interval);
  }

  private mark(key: QueryKey, interval: number): void {
    const name = JSON.stringify(key);
    let entry = this.entries.get(name);
    if (!entry) this.entries.set(name, (entry = { last: Number.NEGATIVE_INFINITY, dirty: false, busy: false, timer: undefined }));
    entry.dirty = true;
    this.plan(key, interval, entry);
  }

  private plan(key: QueryKey, interval: number, entry: Entry): void {
    if (entry.busy || entry.timer !== undefined || !entry.dirty) return;
    const wait = Math.max(0, entry.last + interval - Date.now());
    entry.timer = setTimeout(() => void this.fire(key, interval, entry), wait);
  }

  private async fire(key: QueryKey, interval: number, entry: Entry): Promise<void> {
    Object.assign(entry, { timer: undefined, dirty: false, busy: true, last: Date.now() });
    // A failed question is shown by whoever asked; here it only must not stop the next one.
    await this.ask(key).catch(() => undefined);
    entry.busy = false;
    this.plan(key, interval, entry);
  }
}
