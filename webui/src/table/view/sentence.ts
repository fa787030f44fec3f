// Conditions as people say them: `lr < 0.01`, `state is ACTIVE`, `duration > 10 min`.
import { bytes, duration, utc, moment } from "../../format";
import type { Column, ColumnType } from "../types";
import type { Condition, Group, Node, Value } from "./filter";
import { isGroup, needsValue } from "./filter";

export type Named = ReadonlyMap<string, Column>;

/** The title inside a sentence: `State` becomes `state`; `ID`, `F1` and the person's own names stay. */
export function lowered(column: Column | undefined, key: string): string {
  const title = column?.title ?? key.split(".").slice(1).join(".");
  if (column && column.section !== "run") return title;
  return /^[A-Z][a-z]/.test(title) ? title[0]!.toLowerCase() + title.slice(1) : title;
}

function valueText(value: Value | undefined, type: ColumnType | undefined): string {
  if (value === undefined || value === "") return "…";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (type === "duration" && typeof value === "number") return duration(value);
  if (type === "bytes" && typeof value === "number") return bytes(value);
  if (type === "time" && typeof value === "string") return timeText(value);
  const text = String(value);
  return typeof value === "string" && /\s/.test(text) ? `"${text}"` : text;
}

/** A day without its midnight; otherwise to the minute. */
function timeText(value: string): string {
  const then = moment(value);
  return Number.isNaN(then) ? value : utc(then).replace(/:\d\d UTC$/, "").replace(/ 00:00$/, "");
}

export function conditionSentence(condition: Condition, columns: Named): string {
  const column = columns.get(condition.column);
  const words = [lowered(column, condition.column), condition.operator];
  if (needsValue(condition.operator)) words.push(valueText(condition.value, column?.type));
  return words.join(" ");
}

export function sentence(node: Node, columns: Named): string {
  return isGroup(node) ? groupSentence(node, columns) : conditionSentence(node, columns);
}

function groupSentence({ join, items }: Group, columns: Named): string {
  const word = join === "all" ? " and " : " or ";
  return items.map((item) => (isGroup(item) ? `(${sentence(item, columns)})` : sentence(item, columns))).join(word);
}

/** One chip per condition that must hold on its own; a root of alternatives is one chip. */
export function chips(root: Group, columns: Named): { text: string; place: number | null }[] {
  if (root.join === "any" && root.items.length > 1) return [{ text: sentence(root, columns), place: null }];
  return root.items.map((item, place) => ({ text: sentence(item, columns), place }));
}
