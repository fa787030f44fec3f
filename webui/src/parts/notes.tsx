// What is shown instead of data: nothing yet, not yet, and not possible.
import type { ReactNode } from "react";
import { explain } from "../api/error";
import { Icon } from "./icons";
import { Command } from "./copy";

/** Nothing here, and the command that changes that. */
export function Empty({ children, command }: { children: ReactNode; command?: string }) {
  return (
    <div className="empty">
      <div>{children}</div>
      {command && <Command>{command}</Command>}
    </div>
  );
}

/** One sentence about what went wrong, and a way to try again where there is one. */
export function ErrorNote({ error, retry }: { error: unknown; retry?: () => unknown }) {
  if (!error) return null;
  return (
    <div className="note-error" role="alert">
      <Icon name="warning" />
      <span className="grow">{explain(error)}</span>
      {retry && (
        <button type="button" onClick={() => void retry()}>
          Try again
        </button>
      )}
    </div>
  );
}

/** Grey lines in the place of text that is on its way. */
export function Skeleton({ lines = 4 }: { lines?: number }) {
  return (
    <div role="status" aria-busy="true" aria-label="Loading">
      {Array.from({ length: lines }, (_, place) => (
        <span key={place} className="skeleton" style={{ width: `${[70, 90, 55, 80][place % 4]}%` }} />
      ))}
    </div>
  );
}
