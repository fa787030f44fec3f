// Search, filters and view of a log.
import type { components } from "../../../api";
import { url } from "../../../api";
import { count } from "../../../format";
import { Icon, Tip } from "../../../parts";
import type { LogQuery } from "./useLogQuery";

interface LogBarProps {
  trialId: number;
  query: LogQuery;
  info: components["schemas"]["LogInfo"] | undefined;
  matches: { total: number; isAll: boolean; place: number; error: string } | undefined;
  onStep: (step: 1 | -1) => void;
  view: { times: boolean; wrap: boolean };
  onView: (view: { times: boolean; wrap: boolean }) => void;
}

export function LogBar({ trialId, query, info, matches, onStep, view, onView }: LogBarProps) {
  return (
    <div className="row log-bar">
      <div className="row log-search">
        <input
          type="search"
          value={query.search}
          placeholder={query.isRegex ? "Search by expression" : "Search"}
          aria-label="Search the log"
          aria-invalid={Boolean(matches?.error)}
          onChange={(event) => query.setSearch(event.target.value)}
          onKeyDown={(event) => event.key === "Enter" && onStep(event.shiftKey ? -1 : 1)}
        />
        <Toggle isOn={query.isRegex} onToggle={query.setRegex} label="Search by regular expression">
          .*
        </Toggle>
        <Toggle isOn={query.isOnly} onToggle={query.setOnly} label="Show only lines in which it is found">
          <Icon name="filter" />
        </Toggle>
        {matches && <Found matches={matches} onStep={onStep} />}
      </div>
      <Filters query={query} info={info} />
      <span className="grow" />
      <Toggle isOn={view.times} onToggle={(times) => onView({ ...view, times })} label="Show the time of each line (UTC)">
        Times
      </Toggle>
      <Toggle isOn={view.wrap} onToggle={(wrap) => onView({ ...view, wrap })} label="Break long lines">
        Wrap
      </Toggle>
      <a className="button" href={url("/api/v1/trials/{trial_id}/logs/download", { path: { trial_id: trialId } })} download aria-label="Download the whole log" title="Download the whole log">
        <Icon name="download" />
      </a>
    </div>
  );
}

function Found({ matches, onStep }: { matches: NonNullable<LogBarProps["matches"]>; onStep: (step: 1 | -1) => void }) {
  const total = `${count(matches.total)}${matches.isAll ? "" : "+"}`;
  if (matches.error) {
    return (
      <span className="clip log-bad" role="alert" title={matches.error}>
        {matches.error}
      </span>
    );
  }
  return (
    <>
      <span className="muted num" role="status">
        {matches.total === 0 ? "not found" : matches.place ? `${count(matches.place)} of ${total}` : `${total} found`}
      </span>
      <button type="button" className="plain" aria-label="Previous match" title="Previous match (N)" disabled={!matches.total} onClick={() => onStep(-1)}>
        <Icon name="up" />
      </button>
      <button type="button" className="plain" aria-label="Next match" title="Next match (n)" disabled={!matches.total} onClick={() => onStep(1)}>
        <Icon name="down" />
      </button>
    </>
  );
}

const levels = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];

function Filters({ query, info }: Pick<LogBarProps, "query" | "info">) {
  const ranks = info?.ranks ?? [];
  const nodes = info?.nodes ?? [];
  return (
    <>
      <select aria-label="Least level" value={query.level} onChange={(event) => query.setLevel(event.target.value)}>
        <option value="">all levels</option>
        {levels.map((level) => (
          <option key={level} value={level}>
            {level === "CRITICAL" ? level : `${level} and above`}
          </option>
        ))}
      </select>
      {(ranks.length > 1 || query.rank !== undefined) && (
        <select aria-label="Rank" value={query.rank ?? ""} onChange={(event) => query.setRank(event.target.value === "" ? undefined : Number(event.target.value))}>
          <option value="">all ranks</option>
          {ranks.map((rank) => (
            <option key={rank} value={rank}>
              rank {rank}
            </option>
          ))}
        </select>
      )}
      {(nodes.length > 1 || query.node) && (
        <select aria-label="Node" value={query.node} onChange={(event) => query.setNode(event.target.value)}>
          <option value="">all nodes</option>
          {nodes.map((node) => (
            <option key={node} value={node}>
              {node}
            </option>
          ))}
        </select>
      )}
    </>
  );
}

function Toggle({ isOn, onToggle, label, children }: { isOn: boolean; onToggle: (isOn: boolean) => void; label: string; children: React.ReactNode }) {
  return (
    <Tip text={label}>
      <button type="button" aria-pressed={isOn} aria-label={label} onClick={() => onToggle(!isOn)}>
        {children}
      </button>
    </Tip>
  );
}
