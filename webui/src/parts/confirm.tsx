// The question before something is lost. `await confirm({...})` from any handler; <Confirmations /> in the frame shows it.
import type { ReactNode } from "react";
import { useSyncExternalStore } from "react";
import { Dialog } from "./dialog";

export interface Question {
  /** "Delete 3 experiments?" */
  title: string;
  /** What is lost, and how many. */
  lost: ReactNode;
  /** The verb: "Delete". */
  action: string;
  danger?: boolean;
}

let open: (Question & { answer: (yes: boolean) => void }) | undefined;
const listeners = new Set<() => void>();

function show(next: typeof open): void {
  open = next;
  for (const listener of listeners) listener();
}

/** True when the person says yes; false for Cancel, Esc, or when another question takes its place. */
export function confirm(question: Question): Promise<boolean> {
  open?.answer(false);
  return new Promise((answer) => show({ ...question, answer }));
}

function close(yes: boolean): void {
  open?.answer(yes);
  show(undefined);
}

export function Confirmations() {
  const question = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => open,
  );
  if (!question) return null;
  return (
    <Dialog
      title={question.title}
      action={question.action}
      danger={question.danger ?? true}
      onAction={() => question.answer(true)}
      onClose={() => close(false)}
    >
      <div>{question.lost}</div>
    </Dialog>
  );
}
