// A view: everything a person chose about a table. It lives in the address, so that a reload, the back button and a sent
// link restore it; `sort` is always written, so that an address with a view differs from one without.
import { list } from "../../route/codecs";
import type { Group } from "./filter";
import { none } from "./filter";
import { filterText, parseFilter } from "./filtertext";
import { usual } from "./sort";

export interface View {
  /** Keys in order; null: what the server shows at first. */
  columns: string[] | null;
  widths: Record<string, number>;
  sort: string[];
  filter: Group;
  search: string;
  group: string | null;
  archived: boolean;
  /** Keys of columns with heat colours; "*" is every number. */
  heat: string[];
  dense: boolean;
}

export const plain: View = {
  columns: null,
  widths: {},
  sort: [...usual],
  filter: none,
  search: "",
  group: null,
  archived: false,
  heat: [],
  dense: false,
};

export const keys = ["sort", "cols", "f", "q", "group", "archived", "heat", "rows", "w"] as const;
export type Query = Record<(typeof keys)[number], string | undefined>;

function widthsText(widths: Record<string, number>): string | undefined {
  const entries = Object.entries(widths).map(([key, width]) => `${key}:${Math.round(width)}`);
  return entries.length ? list.format(entries) : undefined;
}

function parseWidths(text: string): Record<string, number> {
  const widths: Record<string, number> = {};
  for (const entry of list.parse(text) ?? []) {
    const found = /^(.+):(\d+)$/.exec(entry);
    if (found) widths[found[1]!] = Math.min(2000, Math.max(40, Number(found[2])));
  }
  return widths;
}

export function toQuery(view: View): Query {
  return {
    sort: list.format(view.sort),
    cols: view.columns ? list.format(view.columns) : undefined,
    f: filterText(view.filter) || undefined,
    q: view.search || undefined,
    group: view.group ?? undefined,
    archived: view.archived ? "1" : undefined,
    heat: view.heat.length ? list.format(view.heat) : undefined,
    rows: view.dense ? "dense" : undefined,
    w: widthsText(view.widths),
  };
}

/** The view that an address holds, or undefined when it holds none. */
export function fromQuery(params: URLSearchParams): View | undefined {
  if (!keys.some((key) => params.has(key))) return undefined;
  const read = (key: (typeof keys)[number]): string => params.get(key) ?? "";
  const sort = (list.parse(read("sort")) ?? []).filter((key) => key !== "").slice(0, 8);
  return {
    columns: params.has("cols") ? [...new Set(list.parse(read("cols")))].filter((key) => key !== "") : null,
    widths: parseWidths(read("w")),
    sort: sort.length ? sort : [...usual],
    filter: parseFilter(read("f")) ?? none,
    search: read("q").slice(0, 200),
    group: read("group") || null,
    archived: read("archived") === "1",
    heat: list.parse(read("heat")) ?? [],
    dense: read("rows") === "dense",
  };
}

/** The view as the query of an address, without a question mark: what is remembered and saved under a name. */
export function viewText(view: View): string {
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(toQuery(view))) if (value !== undefined) params.set(key, value);
  return params.toString();
}

export const parseView = (text: string): View | undefined => fromQuery(new URLSearchParams(text));
