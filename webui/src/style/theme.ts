// Which theme and density are shown, and the colours they give to charts, which cannot read CSS.
import { useSyncExternalStore } from "react";
import { remember, remembered } from "./remembered";

export type Theme = "system" | "light" | "dark";
export type Density = "normal" | "dense";

const listeners = new Set<() => void>();
const system = () => window.matchMedia("(prefers-color-scheme: dark)");

function announce(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  const query = system();
  listeners.add(listener);
  query.addEventListener("change", listener);
  return () => {
    listeners.delete(listener);
    query.removeEventListener("change", listener);
  };
}

function choose(name: "theme" | "density", value: string, usual: string): void {
  if (value === usual) delete document.documentElement.dataset[name];
  else document.documentElement.dataset[name] = value;
  remember(name, value === usual ? undefined : value);
  announce();
}

export const setTheme = (theme: Theme) => choose("theme", theme, "system");
export const setDensity = (density: Density) => choose("density", density, "normal");

export const themeChoice = (): Theme => remembered<Theme>("theme") ?? "system";
export const densityChoice = (): Density => remembered<Density>("density") ?? "normal";

function shown(): "light" | "dark" {
  const choice = themeChoice();
  return choice === "system" ? (system().matches ? "dark" : "light") : choice;
}

/** What was chosen, and which of the two is shown now. Re-renders when either changes. */
export function useTheme(): { choice: Theme; shown: "light" | "dark" } {
  const choice = useSyncExternalStore(subscribe, themeChoice);
  return { choice, shown: useSyncExternalStore(subscribe, shown) };
}

export function useDensity(): Density {
  return useSyncExternalStore(subscribe, densityChoice);
}

/** The value of a token such as "accent" in the theme shown now. Charts redraw when `useTheme().shown` changes. */
export function token(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** Colour and dash of a trial's curve: the same everywhere for one id; beyond eight in a row, dashes. */
export function series(id: number): { color: string; dash: number[] } {
  const place = Math.abs(id - 1);
  const dashes = [[], [6, 4], [2, 3], [8, 3, 2, 3]];
  return { color: token(`series-${(place % 8) + 1}`), dash: dashes[Math.floor(place / 8) % 4] ?? [] };
}
