// A button for something that may not be possible now: then it stays in its place and says why.
import type { ReactNode } from "react";
import { Tip } from "../../parts";
import "./shared.css";

interface ActionProps {
  children: ReactNode;
  /** Why it cannot be done now; empty: it can. */
  why: string | undefined;
  onAct: () => unknown;
  className?: string;
}

/** Not `disabled`: a disabled button cannot be reached by the keyboard, and then nobody reads why. */
export function Action({ children, why, onAct, className = "" }: ActionProps) {
  return (
    <Tip text={why ?? ""}>
      <button type="button" className={className} aria-disabled={Boolean(why)} onClick={() => !why && onAct()}>
        {children}
      </button>
    </Tip>
  );
}
