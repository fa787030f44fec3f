// A chip and a tip: the two smallest parts.
import type { CSSProperties, ReactNode } from "react";
import { useId, useState } from "react";
import { Icon } from "./icons";

/** A short word in a pill, such as a label or a filter; with `onRemove` it can be taken away. */
export function Chip({ children, onRemove, name }: { children: ReactNode; onRemove?: () => void; name?: string }) {
  return (
    <span className="chip">
      <span className="clip">{children}</span>
      {onRemove && (
        <button type="button" onClick={onRemove} aria-label={`Remove ${name ?? "filter"}`}>
          <Icon name="close" size={12} />
        </button>
      )}
    </span>
  );
}

/** An explanation at hover and focus, for what is disabled or short. */
export function Tip({ text, children }: { text: string; children: ReactNode }) {
  const [at, setAt] = useState<CSSProperties>();
  const id = useId();
  if (!text) return children;
  const show = (element: HTMLElement) => {
    const box = element.getBoundingClientRect();
    const left = Math.max(8, Math.min(box.left, window.innerWidth - 330));
    // Above where there is no room below.
    setAt(box.bottom > window.innerHeight - 96 ? { left, bottom: window.innerHeight - box.top + 4 } : { left, top: box.bottom + 4 });
  };
  return (
    <span
      className="tip"
      aria-describedby={at ? id : undefined}
      onPointerEnter={(event) => show(event.currentTarget)}
      onPointerLeave={() => setAt(undefined)}
      onFocus={(event) => show(event.currentTarget)}
      onBlur={() => setAt(undefined)}
    >
      {children}
      {at && (
        <span role="tooltip" id={id} className="tip-text" style={at}>
          {text}
        </span>
      )}
    </span>
  );
}
