// A filter as a tree of conditions and groups, and the changes that the builder makes to it. Pure: each returns a new tree.
import type { Operator, TableQuestion } from "../types";

export type Value = string | number | boolean;
export interface Condition {
  column: string;
  operator: Operator;
  value?: Value;
}
export interface Group {
  join: "all" | "any";
  items: Node[];
}
export type Node = Condition | Group;
/** The places to follow from the root: [1, 0] is the first item of the root's second. */
export type Path = readonly number[];

/** The server takes three: the root and two below it. */
export const deepest = 3;
export const none: Group = { join: "all", items: [] };

export const isGroup = (node: Node): node is Group => "join" in node;
export const needsValue = (operator: Operator): boolean => operator !== "is empty" && operator !== "is not empty";

export function isComplete({ column, operator, value }: Condition): boolean {
  return column !== "" && (!needsValue(operator) || (value !== undefined && value !== "" && !Number.isNaN(value)));
}

/** Put `node` at `path`; undefined takes away what is there. */
export function replaced(group: Group, path: Path, node: Node | undefined): Group {
  const [place, ...rest] = path;
  if (place === undefined) return node && isGroup(node) ? node : none;
  const items = [...group.items];
  const inner = items[place];
  if (inner === undefined) return group;
  if (rest.length === 0) items.splice(place, 1, ...(node ? [node] : []));
  else if (isGroup(inner)) items[place] = replaced(inner, rest, node);
  return { ...group, items };
}

/** Add `node` at the end of the group at `path`. */
export function appended(group: Group, path: Path, node: Node): Group {
  const target = at(group, path);
  if (!target || !isGroup(target)) return group;
  const next = { ...target, items: [...target.items, node] };
  return path.length === 0 ? next : replaced(group, path, next);
}

export function at(group: Group, path: Path): Node | undefined {
  let node: Node | undefined = group;
  for (const place of path) node = node && isGroup(node) ? node.items[place] : undefined;
  return node;
}

/** Without conditions that are not finished and groups that hold nothing; a group of one item is that item. */
export function pruned(group: Group): Group {
  const items = group.items.flatMap((node): Node[] => {
    if (!isGroup(node)) return isComplete(node) ? [node] : [];
    const inner = pruned(node);
    return inner.items.length < 2 ? inner.items : [inner];
  });
  const only = items[0];
  if (items.length === 1 && only && isGroup(only)) return only;
  return { join: items.length < 2 ? "all" : group.join, items };
}

export function conditions(group: Group): Condition[] {
  return group.items.flatMap((node) => (isGroup(node) ? conditions(node) : [node]));
}

export function depth(group: Group): number {
  return 1 + Math.max(0, ...group.items.map((node) => (isGroup(node) ? depth(node) : 0)));
}

type Asked = NonNullable<TableQuestion["filter"]>;

/** The filter as the server wants it, or null when nothing is filtered. */
export function asked(group: Group): Asked | null {
  const clean = pruned(group);
  return clean.items.length === 0 ? null : question(clean);
}

function question(group: Group): Asked {
  const items = group.items.map((node) =>
    isGroup(node) ? question(node) : { column: node.column, operator: node.operator, value: node.value ?? null },
  );
  return group.join === "all" ? { all_of: items } : { any_of: items };
}
