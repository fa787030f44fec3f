// The columns that the store can show here. They change seldom, and finding them is the dearest question of the table, so
// it is asked again at most every few seconds and only after something changed.
import { useEffect, useMemo, useRef } from "react";
import { useChange, useGet } from "../../api";
import type { Column, Kind, Scope } from "../types";

const calm = 5_000;

/** Drawn by the page itself, from small curves that are asked for apart. */
export const sparkColumn: Column = { key: "spark", title: "Curve", section: "run", type: "text", operators: [], is_shown: true };

/** An experiment is known by its name, which comes first; the curve stands beside the values it ends in. */
export function arranged(columns: readonly Column[], kind: Kind): Column[] {
  const name = kind === "experiments" ? columns.filter(({ key }) => key === "run.name") : [];
  const rest = columns.filter((column) => !name.includes(column));
  const near = rest.findLastIndex(({ key }) => key === "run.best_metric" || key === "run.latest_metric");
  const place = near >= 0 ? near + 1 : rest.filter(({ section }) => section === "run").length;
  return [...name, ...rest.slice(0, place), sparkColumn, ...rest.slice(place)];
}

export function useColumns(kind: Kind, { projectId, experimentId }: Scope) {
  const asked = useGet(
    ["columns", kind, projectId ?? null, experimentId ?? null],
    "/api/v1/tables/{kind}/columns",
    { path: { kind }, query: { project_id: projectId, experiment_id: experimentId } },
    { refetchInterval: ({ state }) => (state.data?.is_rough ? 1000 : false) },
  );
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useChange(() => {
    timer.current ??= setTimeout(() => {
      timer.current = undefined;
      void asked.refetch({ cancelRefetch: false });
    }, calm);
  });
  useEffect(() => () => clearTimeout(timer.current), []);
  const columns = useMemo(() => (asked.data ? arranged(asked.data.columns, kind) : undefined), [asked.data, kind]);
  return { columns, isRough: asked.data?.is_rough ?? false, error: asked.error, retry: asked.refetch };
}
