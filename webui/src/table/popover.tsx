// A button that opens a panel over the page: for what needs more room than a menu. The browser's own popover keeps it above
// everything; it is closed here, because the browser would close it at the click on its own button, which then opens it again.
import type { ReactNode } from "react";
import { useId, useLayoutEffect, useRef, useState } from "react";

interface PopoverProps {
  label: ReactNode;
  /** The name of the panel, and of the button when its label is an icon. */
  name: string;
  children: (close: () => void) => ReactNode;
  className?: string;
  tabIndex?: number;
  /** Opened from elsewhere; without it the button alone decides. */
  isOpen?: boolean;
  onClose?: () => void;
}

/** Put the panel below its button, or above where there is no room, and never past an edge of the window. */
export function place(panel: HTMLElement, box: DOMRect): void {
  const edge = 8;
  const { offsetWidth: width, offsetHeight: height } = panel;
  const left = Math.max(edge, Math.min(box.left, window.innerWidth - width - edge));
  const below = box.bottom + 4;
  const isAbove = below + height > window.innerHeight - edge && box.top - height - 4 > edge;
  panel.style.left = `${left}px`;
  panel.style.top = `${isAbove ? box.top - height - 4 : Math.max(edge, Math.min(below, window.innerHeight - height - edge))}px`;
}

export function Popover({ label, name, children, className, tabIndex, isOpen = false, onClose }: PopoverProps) {
  const [clicked, setOpen] = useState(false);
  const open = clicked || isOpen;
  const close = () => {
    setOpen(false);
    onClose?.();
  };
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        tabIndex={tabIndex}
        aria-haspopup="dialog"
        aria-expanded={open}
        aria-controls={open ? id : undefined}
        aria-label={typeof label === "string" ? undefined : name}
        title={typeof label === "string" ? undefined : name}
        onClick={() => (open ? close() : setOpen(true))}
      >
        {label}
      </button>
      {open && (
        <Panel id={id} name={name} anchor={() => button.current} onClose={close}>
          {children(close)}
        </Panel>
      )}
    </>
  );
}

interface PanelProps {
  id?: string;
  name: string;
  anchor: () => Element | null;
  onClose: () => void;
  children: ReactNode;
}

export function Panel({ id, name, anchor, onClose, children }: PanelProps) {
  const ref = useRef<HTMLDivElement>(null);
  const latest = useRef(onClose);
  latest.current = onClose;
  useLayoutEffect(() => {
    const panel = ref.current;
    if (!panel) return undefined;
    const button = anchor();
    panel.showPopover?.();
    const settle = () => button && place(panel, button.getBoundingClientRect());
    settle();
    (panel.querySelector<HTMLElement>("[data-begin]") ?? panel.querySelector<HTMLElement>("input, select, button, [tabindex]"))?.focus();
    // What is inside grows and shrinks (a condition more, a shorter list), and the panel must stay in the window.
    const watch = new ResizeObserver(settle);
    watch.observe(panel);
    const away = ({ target }: PointerEvent) => !panel.contains(target as Node) && !button?.contains(target as Node) && latest.current();
    document.addEventListener("pointerdown", away);
    window.addEventListener("resize", settle);
    return () => {
      watch.disconnect();
      document.removeEventListener("pointerdown", away);
      window.removeEventListener("resize", settle);
      if (panel.contains(document.activeElement) && button instanceof HTMLElement) button.focus();
    };
  }, []);
  return (
    <div
      ref={ref}
      id={id}
      popover="manual"
      className="panel"
      role="dialog"
      aria-label={name}
      onKeyDown={(event) => {
        // Keys of the table (j, k, x) must not act behind the panel.
        event.stopPropagation();
        if (event.key === "Escape") onClose();
      }}
    >
      {children}
    </div>
  );
}
