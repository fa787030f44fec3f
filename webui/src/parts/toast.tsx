// Short news about what was just done. Errors stay until they are closed.
import { useSyncExternalStore } from "react";
import { explain } from "../api/error";
import { Icon } from "./icons";

interface News {
  id: number;
  text: string;
  bad: boolean;
}

let news: News[] = [];
let count = 0;
const listeners = new Set<() => void>();

function set(next: News[]): void {
  news = next.slice(-4);
  for (const listener of listeners) listener();
}

const drop = (id: number) => set(news.filter((one) => one.id !== id));

/** Say what was done: `toast("Paused 3 experiments.")`. */
export function toast(text: string): void {
  const id = (count += 1);
  set([...news, { id, text, bad: false }]);
  setTimeout(() => drop(id), 5000);
}

/** Say what could not be done. */
export function toastError(error: unknown): void {
  set([...news, { id: (count += 1), text: explain(error), bad: true }]);
}

export function Toasts() {
  const all = useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => news,
  );
  return (
    <div className="toasts" role="status" aria-live="polite">
      {all.map((one) => (
        <div key={one.id} className={one.bad ? "toast bad" : "toast"}>
          <span className="grow">{one.text}</span>
          <button type="button" className="plain copy" aria-label="Close" onClick={() => drop(one.id)}>
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}
