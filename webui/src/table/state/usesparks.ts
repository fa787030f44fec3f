// Small curves for the rows in sight, a page of them at a time.
import { useQueries } from "@tanstack/react-query";
import { api } from "../../api";
import type { Kind, TableRow } from "../types";
import { isMoving } from "../../parts";

// A curve of sixty points does not change visibly each second, and each costs the server a look into the metrics.
const calm = 5_000;
const most = 200;

export type Sparks = (id: number) => readonly (number | null)[] | undefined;

export function useSparks(kind: Kind, rows: readonly TableRow[], isShown: boolean): Sparks {
  const pages: TableRow[][] = [];
  const wanted = isShown ? rows : [];
  for (let first = 0; first < wanted.length; first += most) pages.push(wanted.slice(first, first + most));
  const answers = useQueries({
    queries: pages.map((page) => {
      const ids = page.map(({ id }) => id).join(",");
      return {
        queryKey: ["sparks", kind, ids],
        queryFn: ({ signal }: { signal: AbortSignal }) => api.get("/api/v1/tables/{kind}/sparks", { path: { kind }, query: { ids }, signal }),
        refetchInterval: page.some(({ state }) => isMoving(state)) ? calm : (false as const),
      };
    }),
  });
  return (id) => {
    for (const { data } of answers) {
      const found = data?.sparks[String(id)];
      if (found) return found;
    }
    return undefined;
  };
}
