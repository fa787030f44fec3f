// The line at the top that says where you are. Pages name their place with `useCrumbs`; the frame shows it.
import { useEffect, useSyncExternalStore } from "react";

export interface Crumb {
  label: string;
  to?: string;
}

let crumbs: Crumb[] = [];
const listeners = new Set<() => void>();

function set(next: Crumb[]): void {
  crumbs = next;
  document.title = next.length ? `${next.map((crumb) => crumb.label).reverse().join(" · ")} · Resolute` : "Resolute";
  for (const listener of listeners) listener();
}

/** Name the place of this page, outermost first: `useCrumbs({ label: "Experiments", to: "/experiments" }, { label: name })`. */
export function useCrumbs(...next: Crumb[]): void {
  const text = JSON.stringify(next);
  useEffect(() => set(JSON.parse(text) as Crumb[]), [text]);
}

export function useShownCrumbs(): Crumb[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => crumbs,
  );
}
