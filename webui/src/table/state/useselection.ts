// The selected rows, kept in the address. Rows that the filter no longer shows stay selected until they are let go.
import { useCallback, useRef } from "react";
import { toast, toastError } from "../../parts";
import { count } from "../../format";
import { codecs, useQueryState } from "../../route";
import { added, most, nothing, toggled } from "../rows/selection";
import type { Selection } from "../rows/selection";
import type { Kind } from "../types";
import type { Asked, Rows } from "./userows";
import { ask } from "./userows";

export interface Selecting {
  ids: readonly number[];
  has: (id: number) => boolean;
  toggle: (id: number, offset: number) => void;
  /** From the row that was toggled last to this one. */
  extend: (id: number, offset: number) => void;
  all: () => void;
  clear: () => void;
  set: (ids: readonly number[]) => void;
}

export function useSelection(kind: Kind, question: Asked, rows: Rows): Selecting {
  const [ids, setIds] = useQueryState<number[]>("sel", [], codecs.integers);
  const begin = useRef<{ id: number; offset: number }>(undefined);
  const chosen = new Set(ids);
  const now = (): Selection => ({ ...nothing, ids, anchor: begin.current?.id ?? null });
  const set = useCallback((next: readonly number[]) => setIds([...next]), [setIds]);

  /** Ids of rows in the order of the table; those out of sight are asked for. */
  const idsAt = async (first: number, last: number): Promise<number[]> => {
    const known = Array.from({ length: last - first + 1 }, (_, place) => rows.row(first + place)?.id);
    if (!known.includes(undefined)) return known as number[];
    const answer = await ask(kind, { ...question, columns: [] }, first, Math.min(most, last - first + 1));
    return answer.rows.map(({ id }) => id);
  };
  const toggle = (id: number, offset: number) => {
    begin.current = { id, offset };
    set(toggled(now(), id).ids);
  };
  const extend = (id: number, offset: number) => {
    const from = begin.current;
    if (!from) return toggle(id, offset);
    idsAt(Math.min(from.offset, offset), Math.max(from.offset, offset)).then((range) => set(added(now(), range).ids), toastError);
  };
  const all = () => {
    const total = rows.total ?? 0;
    idsAt(0, Math.min(most, total) - 1).then((found) => {
      set(found);
      if (total > most) toast(`Selected the first ${most} of ${count(total)}: one action takes at most ${most}.`);
    }, toastError);
  };
  const clear = () => {
    begin.current = undefined;
    set([]);
  };
  return { ids, has: (id) => chosen.has(id), toggle, extend, all, clear, set };
}
