// How much room there is.
import type { RefObject } from "react";
import { useLayoutEffect, useState, useSyncExternalStore } from "react";

const least = 320;
const gap = 0;

/** The height from an element's top to the bottom of the window, so that the table and not the page scrolls. */
export function useFill(ref: RefObject<HTMLElement | null>): number {
  const [height, setHeight] = useState(600);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const read = () => {
      const top = element.getBoundingClientRect().top + window.scrollY;
      // On a phone the rail is a bar at the bottom, for which <main> leaves room.
      const below = Number.parseFloat(getComputedStyle(element.closest("main") ?? element).paddingBottom) || 0;
      setHeight(Math.max(least, Math.floor(window.innerHeight - top - below - gap)));
    };
    read();
    // What is above (a header, a banner) may grow or go.
    const watch = new ResizeObserver(read);
    watch.observe(document.body);
    window.addEventListener("resize", read);
    return () => {
      watch.disconnect();
      window.removeEventListener("resize", read);
    };
  }, []);
  return height;
}

const narrow = "(max-width: 699px)";

export function useNarrow(): boolean {
  return useSyncExternalStore(
    (listener) => {
      const query = window.matchMedia(narrow);
      query.addEventListener("change", listener);
      return () => query.removeEventListener("change", listener);
    },
    () => window.matchMedia(narrow).matches,
  );
}
