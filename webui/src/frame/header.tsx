// The header of an experiment, a trial, a model or a project. It stays while its tabs scroll.
import type { ReactNode } from "react";
import type { Tab } from "../parts";
import { Progress, State, Tabs } from "../parts";

interface ThingHeaderProps {
  title: string;
  id?: number | string;
  state?: string;
  /** Why it is in this state; shown on hover. */
  reason?: string;
  progress?: number | null | undefined;
  /** Beside the state: "12 of 16 trials", "best 0.991". */
  facts?: ReactNode;
  actions?: ReactNode;
  /** At the right of the actions: "started 4 min ago · 2 slots". */
  aside?: ReactNode;
  tabs?: Tab[];
  current?: string;
  to?: (tab: string) => string;
}

export function ThingHeader(props: ThingHeaderProps) {
  const { title, id, state, reason, progress, facts, actions, aside, tabs, current = "", to } = props;
  return (
    <header className="thing">
      <div className="thing-title">
        <h1>
          {title} {id !== undefined && <span className="muted num">#{id}</span>}
        </h1>
        {state && <State state={state} title={reason} />}
        {state && <Progress share={progress} state={state} />}
        {facts}
      </div>
      {(actions || aside) && (
        <div className="thing-under">
          {actions}
          {aside && <span className="aside">{aside}</span>}
        </div>
      )}
      {tabs && to && <Tabs tabs={tabs} current={current} to={to} label={title} />}
    </header>
  );
}
