// What the server thinks of a configuration while it is typed: asked when the typing rests, forgotten when it goes on.
import { useEffect, useRef, useState } from "react";
import type { components } from "../api";
import { api, explain } from "../api";

export type Purpose = components["schemas"]["Draft"]["purpose"];
export type Checked = components["schemas"]["Checked"];

export interface Checking {
  /** The answer about the text as it is now; undefined while there is none. */
  checked: Checked | undefined;
  /** The last answer, for showing while the next is on its way. */
  last: Checked | undefined;
  error: string;
  isBusy: boolean;
}

const rest = 350;

export function useChecked(experimentId: number, purpose: Purpose, config: string | undefined): Checking {
  const [answer, setAnswer] = useState<{ config: string; checked?: Checked; error: string }>();
  const latest = useRef(config);
  latest.current = config;
  useEffect(() => {
    if (config === undefined) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      api
        .post("/api/v1/experiments/{experiment_id}/check", { path: { experiment_id: experimentId }, body: { config, purpose }, signal: stop.signal })
        .then((checked) => setAnswer({ config, checked, error: "" }))
        .catch((problem: unknown) => !stop.signal.aborted && setAnswer({ config, error: explain(problem) }));
    }, rest);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
  }, [experimentId, purpose, config]);
  const isCurrent = answer?.config === config;
  return {
    checked: isCurrent ? answer?.checked : undefined,
    last: answer?.checked,
    error: isCurrent ? (answer?.error ?? "") : "",
    isBusy: config !== undefined && !isCurrent,
  };
}
