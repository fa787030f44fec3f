// Whether a thing is on the screen, or near it: what is not need not be asked for.
import { useEffect, useRef, useState } from "react";

export function useVisible<T extends HTMLElement>(): [React.RefObject<T | null>, boolean] {
  const ref = useRef<T>(null);
  const [isVisible, setVisible] = useState(false);
  useEffect(() => {
    const element = ref.current;
    if (!element) return undefined;
    const watcher = new IntersectionObserver((entries) => setVisible(entries.at(-1)?.isIntersecting ?? false), { rootMargin: "200px" });
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);
  return [ref, isVisible];
}
