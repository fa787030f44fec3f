// Dragging in the head of the table: an edge to resize, a title to move. A press that does not move stays a click.
import type { PointerEvent } from "react";
import type { Placed } from "../view/columns";
import { clampWidth } from "../view/columns";

/** Farther than this, in pixels, and a press is a drag. */
const slack = 5;

interface Drag {
  move: (dx: number, event: globalThis.PointerEvent) => void;
  /** `moved` says whether it was a drag at all. */
  end: (dx: number, isMoved: boolean) => void;
}

/** Follow the pointer until it is let go; Escape gives up. */
export function follow(event: PointerEvent, { move, end }: Drag): void {
  if (event.button !== 0) return;
  const start = event.clientX;
  let isMoved = false;
  const moving = (next: globalThis.PointerEvent) => {
    isMoved ||= Math.abs(next.clientX - start) > slack;
    if (isMoved) move(next.clientX - start, next);
  };
  const stop = (dx: number, isKept: boolean) => {
    window.removeEventListener("pointermove", moving);
    window.removeEventListener("pointerup", up);
    window.removeEventListener("pointercancel", cancel);
    window.removeEventListener("keydown", key, true);
    end(dx, isKept && isMoved);
  };
  const up = (last: globalThis.PointerEvent) => stop(last.clientX - start, true);
  const cancel = () => stop(0, false);
  const key = (pressed: KeyboardEvent) => {
    if (pressed.key !== "Escape") return;
    pressed.stopPropagation();
    stop(0, false);
  };
  window.addEventListener("pointermove", moving);
  window.addEventListener("pointerup", up);
  window.addEventListener("pointercancel", cancel);
  window.addEventListener("keydown", key, true);
}

export const resized = (width: number, dx: number): number => clampWidth(width + dx);

/** Before which column (a place from 0 to their number) a column let go at `x`, measured along the row, would stand. */
export function target(columns: readonly Placed[], x: number): number {
  const after = columns.findIndex(({ left, width }) => x < left + width / 2);
  return after < 0 ? columns.length : after;
}
