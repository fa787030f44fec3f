// Small choices kept in this browser. Storage may be refused (private windows): then nothing is remembered, and nothing breaks.
const prefix = "resolute.";

export function remembered<T>(name: string): T | undefined {
  try {
    const text = localStorage.getItem(prefix + name);
    return text === null ? undefined : (JSON.parse(text) as T);
  } catch {
    return undefined;
  }
}

/** Keep a value that JSON can hold; `undefined` forgets it. */
export function remember(name: string, value: unknown): void {
  try {
    if (value === undefined) localStorage.removeItem(prefix + name);
    else localStorage.setItem(prefix + name, JSON.stringify(value));
  } catch {
    // Refused or full: the choice lasts as long as this page.
  }
}
