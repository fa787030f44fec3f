// The log of a trial as it is looked at: loaded where one jumps to, grown at both ends, followed at the end.
import { useQuery } from "@tanstack/react-query";
import { useCallback, useEffect, useRef, useState } from "react";
import type { components } from "../../../api";
import { api } from "../../../api";
import type { Window } from "./window";
import { appended, opened, prepended } from "./window";

export type LogLine = components["schemas"]["LineAnswer"];

export interface Filters {
  level?: string | undefined;
  rank?: number[] | undefined;
  node?: string | undefined;
  text?: string | undefined;
  regex?: string | undefined;
}

/** Where to look: at the end, around a line, or from a time on. */
export type Place = { line: number } | { time: string } | "end";

const size = 500;
// More than this at once, and the end is opened anew instead of being caught up with.
const mostPages = 20;

function ask(trialId: number, query: Filters & { after?: number; before?: number; around?: number; time?: string }, signal?: AbortSignal) {
  return api.get("/api/v1/trials/{trial_id}/logs", { path: { trial_id: trialId }, query: { ...query, limit: size }, ...(signal ? { signal } : {}) });
}

async function load(trialId: number, filters: Filters, place: Place, signal: AbortSignal): Promise<Window<LogLine>> {
  if (place === "end") return opened(await ask(trialId, filters, signal), true);
  if ("line" in place) return opened(await ask(trialId, { ...filters, around: place.line }, signal), false);
  const later = await ask(trialId, { ...filters, time: place.time }, signal);
  const found = opened(later, later.lines.length < size);
  const first = later.lines[0]?.id;
  // A few lines before the moment: what led to it is what one looks for.
  return first === undefined ? opened(await ask(trialId, filters, signal), true) : prepended(found, await ask(trialId, { ...filters, before: first }, signal));
}

export interface Log {
  window: Window<LogLine> | undefined;
  error: unknown;
  /** Changes with each jump, so that the view knows when to scroll. */
  jump: number;
  target: number | undefined;
  goTo: (place: Place) => void;
  older: () => void;
  newer: () => void;
}

export function useLog(trialId: number, filters: Filters, start: Place): Log {
  const [window, setWindow] = useState<Window<LogLine>>();
  const [error, setError] = useState<unknown>();
  const [place, setPlace] = useState({ to: start, jump: 0 });
  const [target, setTarget] = useState<number>();
  const held = useRef(window);
  const growing = useRef(false);
  const key = JSON.stringify(filters);

  const put = useCallback((next: Window<LogLine>) => {
    held.current = next;
    setWindow(next);
  }, []);

  useEffect(() => {
    const stop = new AbortController();
    setError(undefined);
    load(trialId, filters, place.to, stop.signal)
      .then((next) => {
        if (stop.signal.aborted) return;
        setTarget(targetOf(next, place.to));
        put(next);
      })
      .catch((problem: unknown) => !stop.signal.aborted && setError(problem));
    return () => stop.abort();
    // `filters` by their text: callers build them anew with each render.
  }, [trialId, key, place, put]);

  const grow = useCallback(
    async (more: (now: Window<LogLine>) => Promise<Window<LogLine>> | undefined) => {
      const before = held.current;
      if (!before || growing.current) return;
      const asked = more(before);
      if (!asked) return;
      growing.current = true;
      try {
        const next = await asked;
        // Another jump may have replaced the window meanwhile; then this page belongs to nothing.
        if (held.current === before) put(next);
      } catch (problem) {
        setError(problem);
      } finally {
        growing.current = false;
      }
    },
    [put],
  );

  const older = useCallback(() => {
    void grow((now) => (now.oldest === null ? undefined : ask(trialId, { ...filters, before: now.oldest }).then((page) => prepended(now, page))));
  }, [trialId, key, grow]);

  const newer = useCallback(() => {
    void grow((now) => (now.isAtEnd ? undefined : ask(trialId, { ...filters, after: now.newest }).then((page) => appended(now, page, size))));
  }, [trialId, key, grow]);

  useTail(trialId, filters, held, put, window?.isAtEnd ?? false);
  const goTo = useCallback((to: Place) => setPlace((now) => ({ to, jump: now.jump + 1 })), []);
  return { window, error, jump: place.jump, target, goTo, older, newer };
}

function targetOf(window: Window<LogLine>, place: Place): number | undefined {
  if (place === "end") return undefined;
  if ("line" in place) return place.line;
  const moment = Date.parse(place.time);
  return window.lines.find((line) => Date.parse(line.time) >= moment)?.id;
}

/** Ask for later lines whenever the server says that there are some. */
function useTail(trialId: number, filters: Filters, held: { current: Window<LogLine> | undefined }, put: (next: Window<LogLine>) => void, isOn: boolean): void {
  const key = JSON.stringify(filters);
  useQuery({
    queryKey: ["logs", trialId, "tail", key],
    enabled: isOn,
    gcTime: 0,
    queryFn: async ({ signal }) => {
      for (let pages = 0; pages < mostPages; pages += 1) {
        const now = held.current;
        if (!now) return 0;
        const page = await ask(trialId, { ...filters, after: now.newest }, signal);
        // Earlier lines may have been added meanwhile; the end is what matters here.
        if (held.current?.newest !== now.newest) return now.newest;
        const next = appended(held.current, page, size);
        const isMore = !next.isAtEnd;
        put({ ...next, isAtEnd: true });
        if (!isMore) return next.newest;
      }
      put(opened(await ask(trialId, filters, signal), true));
      return held.current?.newest ?? 0;
    },
  });
}
