// The stream of changes from the server. It reconnects by itself, rests while the tab is hidden, and after any gap asks
// for everything on screen again, because changes in the gap were not heard.
import { useEffect, useRef, useSyncExternalStore } from "react";
import { api } from "./client";
import type { Change } from "./invalidate";
import { Invalidator } from "./invalidate";
import { queries } from "./query";

export type LiveState = "live" | "reconnecting" | "paused";
export interface Live {
  state: LiveState;
  /** When this state began, in ms since 1970. */
  since: number;
  /** The database answers the server; if not, why. */
  store: { available: boolean; reason: string };
}

// A browser allows six connections to one host over HTTP/1.1, so hidden tabs must let go of theirs soon.
const hiddenGrace = 5_000;
const longestWait = 10_000;

let live: Live = { state: "reconnecting", since: Date.now(), store: { available: true, reason: "" } };
let source: EventSource | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let failures = 0;
let missed = false;
const listeners = new Set<() => void>();
const hearers = new Set<(change: Change) => void>();
const invalidator = new Invalidator((queryKey) => queries.invalidateQueries({ queryKey }));

function set(next: Partial<Live>): void {
  const since = next.state && next.state !== live.state ? Date.now() : live.since;
  live = { ...live, ...next, since };
  for (const listener of listeners) listener();
}

function opened(): void {
  failures = 0;
  set({ state: "live" });
  if (missed) void queries.invalidateQueries();
  missed = false;
}

function lost(): void {
  missed = true;
  set({ state: "reconnecting" });
  // After a refusal (503, a proxy's page) the browser does not try again by itself; after a cut it does.
  if (source?.readyState !== EventSource.CLOSED) return;
  failures += 1;
  // A stream does not say why it was refused; any question does, and a 401 turns the page to the way in.
  void api.get("/api/v1/about").catch(() => undefined);
  clearTimeout(timer);
  timer = setTimeout(connect, Math.min(longestWait, 500 * 2 ** failures));
}

function heard(change: Change): void {
  invalidator.change(change);
  for (const hearer of hearers) hearer(change);
}

function storeSaid(store: { available: boolean; reason?: string }): void {
  const healed = store.available && !live.store.available;
  set({ store: { available: store.available, reason: store.reason ?? "" } });
  if (healed) void queries.invalidateQueries();
}

function connect(): void {
  source?.close();
  source = new EventSource("/api/v1/events");
  source.addEventListener("hello", opened);
  source.addEventListener("change", (event) => heard(JSON.parse(event.data as string) as Change));
  source.addEventListener("store", (event) => storeSaid(JSON.parse(event.data as string)));
  source.onerror = lost;
}

function pause(): void {
  source?.close();
  source = undefined;
  missed = true;
  set({ state: "paused" });
}

function visibilityChanged(): void {
  clearTimeout(timer);
  if (document.hidden) timer = setTimeout(pause, hiddenGrace);
  else if (source === undefined || source.readyState === EventSource.CLOSED) connect();
}

const left = () => source?.close();
const returned = (event: PageTransitionEvent) => event.persisted && connect();

/** Open the stream, once, when the page starts. What is returned ends it. */
export function startLive(): () => void {
  document.addEventListener("visibilitychange", visibilityChanged);
  window.addEventListener("pagehide", left);
  window.addEventListener("pageshow", returned);
  connect();
  return () => {
    document.removeEventListener("visibilitychange", visibilityChanged);
    window.removeEventListener("pagehide", left);
    window.removeEventListener("pageshow", returned);
    clearTimeout(timer);
    left();
  };
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** For code outside of components. */
export const liveNow = (): Live => live;

export function useLive(): Live {
  return useSyncExternalStore(subscribe, liveNow);
}

/** Hear each change as it comes, for what asks only for new points or lines instead of everything again. */
export function useChange(hearer: (change: Change) => void): void {
  const latest = useRef(hearer);
  latest.current = hearer;
  useEffect(() => {
    const hear = (change: Change) => latest.current(change);
    hearers.add(hear);
    return () => void hearers.delete(hear);
  }, []);
}
