// The selected runs themselves, wherever they are: also those that the filter does not show, or that came with a link.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Kind, TableRow } from "../types";
import { ask } from "./userows";

export function useChosen(kind: Kind, ids: readonly number[]): TableRow[] {
  const sorted = [...ids].sort((one, other) => one - other);
  const { data } = useQuery({
    queryKey: ["table", "chosen", kind, sorted.join(",")],
    queryFn: ({ signal }) => ask(kind, { columns: [], sort: ["-run.id"], ids: sorted, archived: true, search: "" }, 0, Math.max(1, sorted.length), signal),
    enabled: sorted.length > 0,
  });
  return useMemo(() => {
    const chosen = new Set(ids);
    return (data?.rows ?? []).filter(({ id }) => chosen.has(id));
  }, [data, ids]);
}
