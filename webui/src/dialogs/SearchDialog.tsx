// A search around an experiment or a trial: a form writes the configuration, the server checks it, then it can be submitted.
import { useEffect, useMemo, useState } from "react";
import { api, explain } from "../api";
import { Dialog, ErrorNote, Skeleton, YamlEditor, toast } from "../parts";
import { Checks, lineErrors } from "./Checks";
import { Budget } from "./search/Budget";
import { Ranges } from "./search/Ranges";
import type { Asked, Form } from "./search/form";
import { formOf, read } from "./search/form";
import { useChecked } from "./useChecked";
import type { SubmissionDialogProps } from "./useDraft";
import { useDraft } from "./useDraft";
import "./dialogs.css";

/** The configuration that the form says, written by the server when the typing rests. */
function useWritten(experimentId: number, asked: Asked | undefined) {
  const [written, setWritten] = useState<{ key: string; config?: string; error: string }>();
  const key = JSON.stringify(asked);
  useEffect(() => {
    if (!asked) return undefined;
    const stop = new AbortController();
    const timer = setTimeout(() => {
      api
        .post("/api/v1/experiments/{experiment_id}/search-config", { path: { experiment_id: experimentId }, body: asked, signal: stop.signal })
        .then(({ config }) => setWritten({ key, config, error: "" }))
        .catch((problem: unknown) => !stop.signal.aborted && setWritten({ key, error: explain(problem) }));
    }, 250);
    return () => {
      clearTimeout(timer);
      stop.abort();
    };
    // `asked` by its text: it is read anew with each render.
  }, [experimentId, key]);
  return asked && written?.key === key ? written : undefined;
}

export function SearchDialog({ experimentId, trialId, onClose, onSubmitted }: SubmissionDialogProps) {
  const draft = useDraft(experimentId, "search", trialId);
  const [form, setForm] = useState<Form>();
  const [edited, setEdited] = useState<string>();
  useEffect(() => {
    if (draft.start?.form) setForm((now) => now ?? formOf(draft.start?.form as Asked));
  }, [draft.start]);
  const first = useMemo(() => draft.start?.form && JSON.stringify(formOf(draft.start.form as Asked)), [draft.start]);
  const state = form ? read(form) : undefined;
  const written = useWritten(experimentId, edited === undefined ? state?.asked : undefined);
  const config = edited ?? written?.config;
  const checking = useChecked(experimentId, "search", config);
  const submit = async () => {
    const body = { config: config ?? "", name: form?.name.trim() || null, paused: false };
    const done = await api.post("/api/v1/experiments/{experiment_id}/fork", { path: { experiment_id: experimentId }, body });
    for (const said of [...done.warnings, done.said]) toast(said);
    onSubmitted(done.experiment_id);
  };
  const isTouched = edited !== undefined || (form !== undefined && JSON.stringify(form) !== first);
  const title = trialId === undefined ? `Search from experiment ${experimentId}` : `Search from trial ${trialId}`;
  return (
    <Dialog wide title={title} action="Start search" onAction={submit} onClose={onClose} disabled={!config || !checking.checked?.is_fine} unsaved={isTouched ? "What you changed in this form has not been submitted." : undefined}>
      <ErrorNote error={draft.error} />
      {!form && !draft.error && <Skeleton lines={10} />}
      {form && state && (
        <fieldset className="search-form" disabled={edited !== undefined}>
          <Budget form={form} problems={state.problems} onChange={setForm} />
          <Ranges form={form} problems={state.problems} onChange={setForm} />
        </fieldset>
      )}
      {form && <ErrorNote error={written?.error} />}
      {config !== undefined && (
        <details className="search-yaml" open={edited !== undefined}>
          <summary>Configuration</summary>
          <YamlEditor value={config} {...(edited !== undefined && { onChange: setEdited })} errors={lineErrors(checking.checked ?? checking.last)} rows={14} />
          {edited === undefined ? (
            <button type="button" onClick={() => setEdited(config)}>
              Edit by hand
            </button>
          ) : (
            <button type="button" onClick={() => setEdited(undefined)}>
              Back to the form
            </button>
          )}
        </details>
      )}
      {config !== undefined && <Checks checking={checking} />}
      {config !== undefined && edited === undefined && checking.checked?.problems.map((one) => <ErrorNote key={one.path + one.reason} error={one.reason} />)}
    </Dialog>
  );
}
