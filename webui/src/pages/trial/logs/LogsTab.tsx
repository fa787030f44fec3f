// The log of a trial: search, filters, and its lines, live.
import { useMemo, useState } from "react";
import { useGet } from "../../../api";
import { useKeys } from "../../../frame";
import { Empty, ErrorNote, Skeleton, isOver } from "../../../parts";
import { codecs, here, setQuery, useQueryState } from "../../../route";
import { remember, remembered } from "../../../style/remembered";
import { useRested } from "../../shared/useRested";
import type { Trial } from "../useTrial";
import { LogBar } from "./LogBar";
import { LogView } from "./LogView";
import { finder } from "./marks";
import { useLog } from "./useLog";
import { filtersOf, startOf, useLogQuery } from "./useLogQuery";
import { useMatches } from "./useMatches";
import { nextMatch } from "./window";
import "./logs.css";

interface View {
  times: boolean;
  wrap: boolean;
}

export default function LogsTab({ trial }: { trial: Trial }) {
  const query = useLogQuery();
  const search = useRested(query.search.trim(), 250);
  const [start] = useState(() => startOf(here().search));
  const [line, setLine] = useQueryState<number>("line", 0, codecs.integer);
  const [view, setView] = useState<View>(() => remembered<View>("logs") ?? { times: true, wrap: false });
  const { data: info } = useGet(["logs-info", trial.id], "/api/v1/trials/{trial_id}/logs/info", { path: { trial_id: trial.id } });
  const log = useLog(trial.id, filtersOf(query, search), start);
  const matches = useMatches(trial.id, { ...query, search, isLive: !isOver(trial.state) });
  const find = useMemo(() => finder({ text: search, isRegex: query.isRegex }), [search, query.isRegex]);
  const current = line || log.target;

  const step = (by: 1 | -1) => {
    const next = nextMatch(matches?.ids ?? [], current, by);
    if (next === undefined) return;
    setQuery({ line: String(next), at: undefined });
    log.goTo({ line: next });
  };
  useKeys({ n: ["Next match in the log", () => step(1)], N: ["Previous match in the log", () => step(-1)] });
  const show = (next: View) => {
    remember("logs", next);
    setView(next);
  };
  const found = matches && { total: matches.ids.length, isAll: matches.isAll, error: matches.error, place: current ? matches.ids.indexOf(current) + 1 : 0 };
  return (
    <section className="logs" aria-label="Logs">
      <LogBar trialId={trial.id} query={query} info={info} matches={found} onStep={step} view={view} onView={show} />
      <ErrorNote error={matches?.error ? undefined : log.error} retry={() => log.goTo("end")} />
      {!log.window && !log.error && <Skeleton lines={12} />}
      {log.window?.lines.length === 0 && <NoLines isFiltered={Object.keys(filtersOf(query, search)).length > 0} isLive={!isOver(trial.state)} />}
      {log.window && log.window.lines.length > 0 && (
        <LogView
          log={{ ...log, window: log.window }}
          find={find}
          current={current}
          hasTimes={view.times}
          hasRanks={(info?.ranks.length ?? 0) > 1}
          wrap={view.wrap}
          onPick={setLine}
        />
      )}
    </section>
  );
}

function NoLines({ isFiltered, isLive }: { isFiltered: boolean; isLive: boolean }) {
  if (isFiltered) return <Empty>No line fits. Take a filter away, or search with other words.</Empty>;
  return <Empty>{isLive ? "Nothing has been printed yet. Lines appear here as they come." : "This trial printed nothing that was kept."}</Empty>;
}
