// Which search method, towards which metric, and how much it may train.
import type { ReactNode } from "react";
import type { Form, Searcher } from "./form";
import { needs } from "./form";

export interface FormProps {
  form: Form;
  problems: Record<string, string>;
  onChange: (form: Form) => void;
}

const searchers: [Searcher, string][] = [
  ["adaptive_asha", "Adaptive ASHA: many trials, the poor ones stopped early"],
  ["async_halving", "ASHA in one bracket"],
  ["random", "Random: every trial trained to its end"],
  ["grid", "Grid: every combination"],
];

export function Budget({ form, problems, onChange }: FormProps) {
  const set = (change: Partial<Form>) => onChange({ ...form, ...change });
  const text = (key: "maxTrials" | "maxTime" | "maxConcurrent" | "timeMetric" | "metric" | "name", label: string, hint = "") => (
    <Labelled label={label} problem={problems[key]}>
      <input value={form[key]} placeholder={hint} aria-invalid={Boolean(problems[key])} onChange={(event) => set({ [key]: event.target.value })} />
    </Labelled>
  );
  return (
    <div className="search-budget">
      {text("name", "Name")}
      <Labelled label="Method">
        <select value={form.searcher} onChange={(event) => set({ searcher: event.target.value as Searcher })}>
          {searchers.map(([key, label]) => (
            <option key={key} value={key}>
              {label}
            </option>
          ))}
        </select>
      </Labelled>
      {text("metric", "Metric")}
      <Labelled label="Better is">
        <select value={form.smallerIsBetter ? "smaller" : "larger"} onChange={(event) => set({ smallerIsBetter: event.target.value === "smaller" })}>
          <option value="smaller">smaller</option>
          <option value="larger">larger</option>
        </select>
      </Labelled>
      {needs.trials(form.searcher) && text("maxTrials", "Trials")}
      {needs.time(form.searcher) && text("maxTime", "Longest trial")}
      {needs.time(form.searcher) && text("timeMetric", "Measured in", "batches")}
      {text("maxConcurrent", "Trials at once", "16")}
    </div>
  );
}

export function Labelled({ label, problem, children }: { label: string; problem?: string | undefined; children: ReactNode }) {
  return (
    <label className="field">
      {label}
      {children}
      {problem && <small className="field-bad">{problem}</small>}
    </label>
  );
}
