// How much room there is.
import type { RefObject } from "react";
import { useLayoutEffect, useState, useSyncExternalStore } from "react";

const least = 320;

/** What is left free below an element, in it and around it, down to <main>: on a phone that has room for the bar at the bottom. */
function below(element: HTMLElement): number {
  let sum = 0;
  for (let one: HTMLElement | null = element; one; one = one.tagName === "MAIN" ? null : one.parentElement) {
    const { paddingBottom, marginBottom } = getComputedStyle(one);
    sum += (Number.parseFloat(paddingBottom) || 0) + (Number.parseFloat(marginBottom) || 0);
  }
  return sum;
}

/** The height from an element's top to the bottom of the window, so that the table and not the page scrolls. */
export function useFill(ref: RefObject<HTMLElement | null>): number {
  const [height, setHeight] = useState(600);
  useLayoutEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const read = () => {
      const top = element.getBoundingClientRect().top + window.scrollY;
      setHeight(Math.max(least, Math.floor(window.innerHeight - top - below(element))));
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
