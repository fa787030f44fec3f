// The columns that the store can show here. They change seldom, and finding them is the dearest question of the table, so
// it is asked again at most every few seconds and only after something changed.
import { useEffect, useMemo, useRef } from "react";
import { useChange, useGet } from "../../api";
import type { Column, Kind, Scope } from "../types";

const calm = 5_000;

/** Drawn by the page itself, from small curves that are asked for apart. */
export const sparkColumn: Column = { key: "spark", title: "Curve", section: "run", type: "text", operators: [], is_shown: true };

/** The curve stands after the last column of the run that is a number with a best value, else at the end of the run's. */
function withSpark(columns: Column[]): Column[] {
  const near = columns.findLastIndex(({ key }) => /^run\.(best|latest|metric|searcher_metric)/.test(key));
  const place = near >= 0 ? near + 1 : columns.filter(({ section }) => section === "run").length;
  return [...columns.slice(0, place), sparkColumn, ...columns.slice(place)];
}

export function useColumns(kind: Kind, { projectId, experimentId }: Scope) {
  const asked = useGet(["columns", kind, projectId ?? null, experimentId ?? null], "/api/v1/tables/{kind}/columns", {
    path: { kind },
    query: { project_id: projectId, experiment_id: experimentId },
  });
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useChange(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void asked.refetch({ cancelRefetch: false });
    }, calm);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const columns = useMemo(() => (asked.data ? withSpark(asked.data.columns) : undefined), [asked.data]);
  return { columns, error: asked.error, retry: asked.refetch };
}
