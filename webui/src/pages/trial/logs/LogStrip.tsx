// The last lines of the log, below the other tabs. It folds to one line, and remembers that.
import { useState } from "react";
import { useGet } from "../../../api";
import { Icon } from "../../../parts";
import { Link } from "../../../route";
import { remember, remembered } from "../../../style/remembered";
import { LogRow } from "./LogRow";
import "./logs.css";

export function LogStrip({ trialId, to }: { trialId: number; to: string }) {
  const [isOpen, setOpen] = useState(() => remembered<boolean>("log-strip") ?? false);
  const { data } = useGet(["logs", trialId, "strip"], "/api/v1/trials/{trial_id}/logs", { path: { trial_id: trialId }, query: { limit: 8 } });
  if (!data?.lines.length) return null;
  const toggle = () => {
    remember("log-strip", !isOpen);
    setOpen(!isOpen);
  };
  const lines = isOpen ? data.lines : data.lines.slice(-1);
  return (
    <aside className="log-strip" aria-label="Last lines of the log">
      <div className="log-strip-head">
        <button type="button" className="plain" aria-expanded={isOpen} aria-label={isOpen ? "Fold the log" : "Unfold the log"} onClick={toggle}>
          <Icon name={isOpen ? "down" : "up"} />
        </button>
        <Link to={to}>Logs</Link>
      </div>
      <div className="log-strip-lines">
        {lines.map((line) => (
          <LogRow key={line.id} line={line} find={undefined} isCurrent={false} hasTimes={false} hasRanks={false} isNewAttempt={false} onPick={() => undefined} />
        ))}
      </div>
    </aside>
  );
}
