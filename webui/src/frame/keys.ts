// Keys that do something by themselves. One listener for the page; what was registered last is asked first.
import { useEffect, useRef } from "react";

export type Keys = Record<string, [what: string, act: (event: KeyboardEvent) => unknown]>;

const stack: { current: Keys }[] = [];

/** Whether a key press belongs to a field that is being typed in. */
export function isTyping(target: EventTarget | null): boolean {
  if (!(target instanceof HTMLElement)) return false;
  const field = target.closest("input, textarea, select, [contenteditable]");
  const button = field instanceof HTMLInputElement && /^(checkbox|radio|range|button)$/.test(field.type);
  return field !== null && !button;
}

// Enter on a link, a button or a row's checkbox is theirs.
const ownsEnter = (target: EventTarget | null) => target instanceof HTMLElement && target.closest("a, button, summary") !== null;

export function press(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
  if (document.querySelector("dialog[open]") || (event.key === "Enter" && ownsEnter(event.target))) return;
  for (const keys of stack.toReversed()) {
    const found = keys.current[event.key];
    if (!found) continue;
    event.preventDefault();
    found[1](event);
    return;
  }
}

if (typeof document !== "undefined") document.addEventListener("keydown", press);

/** All keys that work now, with what they do, for the list under `?`. */
export function currentKeys(): [key: string, what: string][] {
  const all = new Map<string, string>();
  for (const keys of stack) for (const [key, [what]] of Object.entries(keys.current)) all.set(key, what);
  return [...all];
}

/** Register keys while this component is shown: `useKeys({ j: ["Next row", next], k: ["Previous row", previous] })`. */
export function useKeys(keys: Keys): void {
  const latest = useRef(keys);
  latest.current = keys;
  useEffect(() => {
    stack.push(latest);
    return () => void stack.splice(stack.indexOf(latest), 1);
  }, []);
}
