// Where the page is: a thin layer over the History API. The address is the only state; components read it with `useLocation`.
import { useSyncExternalStore } from "react";

export interface Place {
  path: string;
  search: string;
}

let place: Place = read();
const listeners = new Set<() => void>();

function read(): Place {
  return { path: window.location.pathname, search: window.location.search };
}

function moved(): void {
  place = read();
  for (const listener of listeners) listener();
}

window.addEventListener("popstate", moved);

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** The place now, for code outside of components. */
export const here = (): Place => place;

export function useLocation(): Place {
  return useSyncExternalStore(subscribe, here);
}

/** Go to an address of this page. `replace` leaves no step for the back button: for typing, sorting, resizing. */
export function navigate(to: string, { replace = false } = {}): void {
  const before = window.location.pathname;
  if (to === before + window.location.search) return;
  if (replace) window.history.replaceState(null, "", to);
  else window.history.pushState(null, "", to);
  if (!replace && window.location.pathname !== before) window.scrollTo(0, 0);
  moved();
}

/** An address with its query; empty and undefined values are left out. */
export function address(path: string, query: Record<string, string | number | undefined> = {}): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) if (value !== undefined && value !== "") params.set(key, String(value));
  const text = params.toString();
  return text ? `${path}?${text}` : path;
}
