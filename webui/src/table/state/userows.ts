// Rows in pages, fetched as they come into sight. What was shown stays until its successor is here: a new order or filter
// never leaves the table empty for a moment.
import { useQueries } from "@tanstack/react-query";
import { useRef } from "react";
import { api } from "../../api";
import type { Kind, Range, TableAnswer, TableQuestion, TableRow } from "../types";

export const pageSize = 200;

/** The question without its page. */
export type Asked = Omit<TableQuestion, "offset" | "limit">;

interface Kept {
  key: string;
  pages: ReadonlyMap<number, TableAnswer>;
  newest: TableAnswer | undefined;
  cells: ReadonlyMap<string, number>;
}

export interface Rows {
  /** Undefined until the first answer. */
  total: number | undefined;
  row: (offset: number) => TableRow | undefined;
  /** Where the cell of a column is in a row's cells. */
  cells: ReadonlyMap<string, number>;
  ranges: Record<string, Range>;
  best: Record<string, number>;
  groups: [string, number][] | null;
  /** What is shown is the answer to an older question. */
  isOld: boolean;
  /** Changes whenever any row may have. */
  version: unknown;
  /** The question that what is shown answers. */
  question: string;
  error: unknown;
  retry: () => unknown;
}

export const ask = (kind: Kind, question: Asked, offset: number, limit: number, signal?: AbortSignal): Promise<TableAnswer> =>
  api.post("/api/v1/tables/{kind}/rows", { path: { kind }, body: { ...question, offset, limit } as TableQuestion, ...(signal && { signal }) });

const nothing: Kept = { key: "", pages: new Map(), newest: undefined, cells: new Map() };

type Fresh = { page: number; data: TableAnswer; at: number };

function merged(kept: Kept, key: string, columns: readonly string[], fresh: Fresh[]): Kept {
  const isSame = kept.key === key;
  if (!fresh.length || (isSame && fresh.every(({ page, data }) => kept.pages.get(page) === data))) return kept;
  const pages = new Map(isSame ? kept.pages : []);
  for (const { page, data } of fresh) pages.set(page, data);
  const newest = fresh.reduce((one, other) => (other.at > one.at ? other : one)).data;
  return { key, pages, newest, cells: new Map(columns.map((column, place) => [column, place])) };
}

/** The server counts a thousand groups; the rows of all others stand in one at the end. */
export function groupsOf({ groups, total }: Pick<TableAnswer, "groups" | "total">): [string, number][] {
  const counted = groups.reduce((sum, { count }) => sum + count, 0);
  const all = groups.map(({ value, count }): [string, number] => [value, count]);
  return counted < total ? [...all, ["other values", total - counted]] : all;
}

export function useRows(kind: Kind, question: Asked, pages: readonly number[]): Rows {
  const key = JSON.stringify([kind, question]);
  const answers = useQueries({
    queries: pages.map((page) => ({
      queryKey: ["table", "rows", key, page],
      queryFn: ({ signal }: { signal: AbortSignal }) => ask(kind, question, page * pageSize, pageSize, signal),
      // A server that has just started answers before it has read everything.
      refetchInterval: ({ state }: { state: { data: TableAnswer | undefined } }) => (state.data?.is_rough ? 1000 : (false as const)),
    })),
  });
  const kept = useRef(nothing);
  const fresh = answers.flatMap(({ data, dataUpdatedAt: at }, place) => (data ? [{ page: pages[place]!, data, at }] : []));
  kept.current = merged(kept.current, key, question.columns, fresh);

  const { pages: held, newest, cells } = kept.current;
  const failed = answers.find(({ error }) => error);
  return {
    total: newest?.total,
    row: (offset) => held.get(Math.floor(offset / pageSize))?.rows[offset % pageSize],
    cells,
    ranges: newest?.ranges ?? {},
    best: newest?.best ?? {},
    groups: newest && question.group_by ? groupsOf(newest) : null,
    isOld: kept.current.key !== key,
    version: kept.current,
    question: kept.current.key,
    error: failed?.error,
    retry: () => failed?.refetch(),
  };
}
