// A value that changes with every movement of the mouse, and is passed on when the movement rests.
import { useEffect, useRef, useState } from "react";

export function useRested<T>(value: T, pass: (value: T) => void, rest = 150): [T, (value: T) => void] {
  const [now, setNow] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  // Changed from elsewhere: the back button, a reset.
  useEffect(() => {
    clearTimeout(timer.current);
    setNow(value);
  }, [JSON.stringify(value)]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const set = (next: T) => {
    setNow(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => pass(next), rest);
  };
  return [now, set];
}
