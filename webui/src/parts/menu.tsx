// A button that opens a short list of verbs.
import type { KeyboardEvent, ReactNode } from "react";
import { useEffect, useLayoutEffect, useRef, useState } from "react";

export interface Item {
  label: string;
  onSelect: () => unknown;
  /** Why it cannot be chosen now; shown below the word. */
  disabled?: string | undefined;
  danger?: boolean;
  /** A line above this one. */
  apart?: boolean;
}

interface MenuProps {
  label: ReactNode;
  items: Item[];
  /** The name for those who cannot see an icon as label. */
  name?: string;
  /** "up" opens above the button. */
  align?: "left" | "right" | "right up";
  className?: string;
}

export function Menu({ label, items, name, align = "left", className }: MenuProps) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const choices = () => [...(root.current?.querySelectorAll<HTMLElement>("[role=menuitem]:not(:disabled)") ?? [])];

  useEffect(() => {
    if (!open) return undefined;
    choices()[0]?.focus();
    const away = (event: PointerEvent) => !root.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener("pointerdown", away);
    return () => document.removeEventListener("pointerdown", away);
  }, [open]);

  // Near the edge of a narrow window the list moves inwards.
  useLayoutEffect(() => {
    const list = open ? root.current?.querySelector<HTMLElement>(".menu-list") : undefined;
    if (!list) return;
    const { left, right } = list.getBoundingClientRect();
    const shift = left < 8 ? 8 - left : Math.min(0, window.innerWidth - 8 - right);
    if (shift) list.style.transform = `translateX(${shift}px)`;
  }, [open]);

  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  const keys = (event: KeyboardEvent) => {
    if (!open) return;
    const all = choices();
    const place = all.indexOf(document.activeElement as HTMLElement);
    const move: Record<string, number> = { ArrowDown: place + 1, ArrowUp: place - 1 + all.length, Home: 0, End: all.length - 1 };
    if (event.key === "Escape") close();
    else if (event.key === "Tab") setOpen(false);
    else if (event.key in move) all[(move[event.key] ?? 0) % all.length]?.focus();
    else return;
    if (event.key !== "Tab") event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div className="menu" ref={root} onKeyDown={keys}>
      <button
        ref={button}
        type="button"
        className={className}
        aria-haspopup="menu"
        aria-expanded={open}
        aria-label={name}
        title={name}
        onClick={() => setOpen(!open)}
      >
        {label}
      </button>
      {open && (
        <div className={`menu-list ${align}`} role="menu">
          {items.map((item) => [
            item.apart && <hr key={`${item.label} line`} />,
            <button
              key={item.label}
              type="button"
              role="menuitem"
              className={item.danger ? "danger" : ""}
              disabled={Boolean(item.disabled)}
              onClick={() => {
                close();
                item.onSelect();
              }}
            >
              <span>
                {item.label}
                {item.disabled && <small>{item.disabled}</small>}
              </span>
            </button>,
          ])}
        </div>
      )}
    </div>
  );
}
