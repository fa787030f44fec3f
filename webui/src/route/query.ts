// State that lives in the query of the address, so that a reload, the back button and a sent link restore it.
import { useCallback, useMemo } from "react";
import type { Codec } from "./codecs";
import { text } from "./codecs";
import { here, navigate, useLocation } from "./router";

/** The search part after setting one key; the default is left out, so that addresses stay short. */
export function withValue(search: string, key: string, value: string | undefined): string {
  const params = new URLSearchParams(search);
  if (value === undefined) params.delete(key);
  else params.set(key, value);
  const joined = params.toString();
  return joined ? `?${joined}` : "";
}

type Next<T> = T | ((now: T) => T);

/**
 * Like useState, kept in the query under `key`.
 *
 * Changes replace the address by default (typing, sorting); pass `{ push: true }` for what the back button should undo.
 */
export function useQueryState<T = string>(
  key: string,
  fallback: T,
  codec: Codec<T> = text as unknown as Codec<T>,
): [T, (next: Next<T>, how?: { push?: boolean }) => void] {
  const raw = new URLSearchParams(useLocation().search).get(key);
  const usual = codec.format(fallback);
  // By text, because callers pass literals whose identity changes with each render.
  const value = useMemo(() => (raw === null ? fallback : (codec.parse(raw) ?? fallback)), [raw, usual]);
  const set = useCallback(
    (next: Next<T>, { push = false } = {}) => {
      const now = new URLSearchParams(here().search).get(key);
      const before = now === null ? fallback : (codec.parse(now) ?? fallback);
      const after = typeof next === "function" ? (next as (now: T) => T)(before) : next;
      const written = codec.format(after);
      navigate(here().path + withValue(here().search, key, written === usual ? undefined : written), { replace: !push });
    },
    [key, usual],
  );
  return [value, set];
}

/** Set several keys in one step; undefined removes a key. */
export function setQuery(values: Record<string, string | undefined>, { push = false } = {}): void {
  let search = here().search;
  for (const [key, value] of Object.entries(values)) search = withValue(search, key, value);
  navigate(here().path + search, { replace: !push });
}
