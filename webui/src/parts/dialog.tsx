// Dialogs on the browser's own <dialog>: focus stays inside, Esc closes, what is behind cannot be reached.
import type { FormEvent, ReactNode, SyntheticEvent } from "react";
import { useEffect, useId, useRef, useState } from "react";
import { Icon } from "./icons";
import { confirm } from "./confirm";
import { ErrorNote } from "./notes";

interface DialogProps {
  title: string;
  onClose: () => void;
  children: ReactNode;
  /** The verb on the main button; without it the dialog only shows. */
  action?: string;
  /** Done when the main button is pressed. The dialog closes when it resolves; a thrown error is shown in it. */
  onAction?: () => unknown;
  disabled?: boolean;
  danger?: boolean;
  wide?: boolean;
  footer?: ReactNode;
  /** What closing would lose now; asked about first. */
  unsaved?: string | undefined;
}

/** Render it while it is open; there is no `open` prop. */
export function Dialog({ title, onClose, children, action, onAction, disabled, danger, wide, footer, unsaved }: DialogProps) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>();
  useEffect(() => {
    const before = document.activeElement;
    if (!ref.current?.open) ref.current?.showModal();
    // The first field; without one, the button that does nothing.
    ref.current?.querySelector<HTMLElement>(".dialog-body :is(input, textarea, select):not(:disabled), .dialog-form > footer > .dismiss")?.focus();
    return () => (before instanceof HTMLElement ? before.focus() : undefined);
  }, []);
  const leave = async () => {
    if (!unsaved || (await confirm({ title: "Close without submitting?", lost: unsaved, action: "Discard" }))) ref.current?.close();
  };
  const cancelled = (event: SyntheticEvent) => {
    if (!unsaved) return;
    event.preventDefault();
    void leave();
  };
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    if (!onAction) return;
    setBusy(true);
    setError(undefined);
    try {
      await onAction();
      onClose();
    } catch (problem) {
      setError(problem);
    } finally {
      setBusy(false);
    }
  };
  return (
    <dialog ref={ref} className={wide ? "wide" : ""} aria-labelledby={id} onClose={onClose} onCancel={cancelled}>
      <header>
        <h2 id={id}>{title}</h2>
        <button type="button" className="plain" aria-label="Close" onClick={() => void leave()}>
          <Icon name="close" />
        </button>
      </header>
      <form className="dialog-form" onSubmit={(event) => void submit(event)}>
        <div className="dialog-body">
          {children}
          <ErrorNote error={error} />
        </div>
        {(action || footer) && (
          <footer>
            {footer}
            <button type="button" className="dismiss" onClick={() => void leave()}>
              {action ? "Cancel" : "Close"}
            </button>
            {action && (
              <button type="submit" className={danger ? "primary danger" : "primary"} disabled={disabled || busy}>
                {action}
              </button>
            )}
          </footer>
        )}
      </form>
    </dialog>
  );
}
