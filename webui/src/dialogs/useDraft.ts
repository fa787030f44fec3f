// The text that a dialog starts with, and what becomes of it.
import { useEffect, useState } from "react";
import { useGet } from "../api";
import type { Purpose } from "./useChecked";

export interface SubmissionDialogProps {
  experimentId: number;
  /** Go on from this trial: its hyperparameters are constants. */
  trialId?: number;
  onClose: () => void;
  onSubmitted: (experimentId: number) => void;
}

export function useDraft(experimentId: number, purpose: Purpose, trialId?: number) {
  const [config, setConfig] = useState<string>();
  const [name, setName] = useState("");
  const query = { purpose, ...(trialId !== undefined && { trial_id: trialId }) };
  const { data, error } = useGet(["draft", experimentId, query], "/api/v1/experiments/{experiment_id}/draft", { path: { experiment_id: experimentId }, query }, { staleTime: 0, gcTime: 0 });
  useEffect(() => {
    if (!data) return;
    setConfig((now) => now ?? data.config);
    setName((now) => now || data.name);
  }, [data]);
  const isTouched = data !== undefined && config !== undefined && (config !== data.config || name !== data.name);
  const unsaved = isTouched ? "What you changed has not been submitted." : undefined;
  return { start: data, error, config, setConfig, name, setName, unsaved };
}
