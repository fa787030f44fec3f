// Whether this browser may ask at all. The token of `det ui` comes with its link; without it every answer is 401.
import { useSyncExternalStore } from "react";

let allowed = true;
const listeners = new Set<() => void>();

/** Called by the client at a 401: the whole page then says how to come in. */
export function refused(): void {
  allowed = false;
  for (const listener of listeners) listener();
}

export function useAllowed(): boolean {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => allowed,
  );
}
