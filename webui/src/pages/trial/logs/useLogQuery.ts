// What is looked for in a log. It lives in the address.
import { codecs, useQueryState } from "../../../route";
import { moment } from "../../../format";
import type { Filters, Place } from "./useLog";

const rankCodec = {
  parse: (text: string) => (text === "" ? undefined : codecs.integer.parse(text)),
  format: (rank: number | undefined) => (rank === undefined ? "" : String(rank)),
};

export function useLogQuery() {
  const [search, setSearch] = useQueryState("q", "");
  const [isRegex, setRegex] = useQueryState("regex", false, codecs.flag);
  const [isOnly, setOnly] = useQueryState("only", false, codecs.flag);
  const [level, setLevel] = useQueryState("level", "");
  const [rank, setRank] = useQueryState<number | undefined>("rank", undefined, rankCodec);
  const [node, setNode] = useQueryState("node", "");
  return { search, setSearch, isRegex, setRegex, isOnly, setOnly, level, setLevel, rank, setRank, node, setNode };
}

export type LogQuery = ReturnType<typeof useLogQuery>;

/** The part of it that says which lines are shown at all. */
export function filtersOf(query: Pick<LogQuery, "isRegex" | "isOnly" | "level" | "rank" | "node">, search: string): Filters {
  const filters: Filters = {};
  if (query.level) filters.level = query.level;
  if (query.rank !== undefined) filters.rank = [query.rank];
  if (query.node) filters.node = query.node;
  if (query.isOnly && search) filters[query.isRegex ? "regex" : "text"] = search;
  return filters;
}

/** `?line=` is a line that was linked to, `?at=` a moment that was clicked in a chart (ISO, or ms since 1970). */
export function startOf(search: string): Place {
  const params = new URLSearchParams(search);
  const line = codecs.integer.parse(params.get("line") ?? "");
  if (line !== undefined) return { line };
  const at = params.get("at") ?? params.get("time") ?? "";
  const time = /^\d+$/.test(at) ? Number(at) : moment(at);
  return Number.isFinite(time) && at !== "" ? { time: new Date(time).toISOString() } : "end";
}
