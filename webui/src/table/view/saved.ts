// Views under names, and the last one, kept in this browser for each table of each project.
import { remember, remembered } from "../../style/remembered";
import type { Kind, Scope } from "../types";
import type { View } from "./view";
import { parseView, viewText } from "./view";

export interface SavedView {
  name: string;
  text: string;
}

/** The trials of all experiments share one memory: it would otherwise grow with every experiment looked at. */
export function place(kind: Kind, scope: Scope): string {
  const where = scope.experimentId !== undefined ? "experiment" : scope.projectId !== undefined ? `project-${scope.projectId}` : "all";
  return `${kind}.${where}`;
}

export const savedViews = (where: string): SavedView[] => {
  const found = remembered<unknown>(`views.${where}`);
  return Array.isArray(found) ? found.filter(isSaved) : [];
};

function isSaved(one: unknown): one is SavedView {
  const { name, text } = (one ?? {}) as Partial<SavedView>;
  return typeof name === "string" && typeof text === "string" && parseView(text) !== undefined;
}

/** Keep a view under a name; one of the same name is replaced in its place. */
export function saveView(where: string, name: string, view: View): SavedView[] {
  const one = { name, text: viewText(view) };
  const views = savedViews(where);
  const known = views.findIndex((other) => other.name === name);
  if (known >= 0) views[known] = one;
  else views.push(one);
  remember(`views.${where}`, views);
  return views;
}

export function forgetView(where: string, name: string): SavedView[] {
  const views = savedViews(where).filter((one) => one.name !== name);
  remember(`views.${where}`, views.length ? views : undefined);
  return views;
}

export function lastView(where: string): View | undefined {
  const text = remembered<unknown>(`view.${where}`);
  return typeof text === "string" ? parseView(text) : undefined;
}

/** A search is of the moment and is not remembered; the rest is. */
export const keepView = (where: string, view: View | undefined): void =>
  remember(`view.${where}`, view && viewText({ ...view, search: "" }));
