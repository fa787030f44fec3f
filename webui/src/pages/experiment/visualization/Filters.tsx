// What of the search is shown: metric, step and margin, hyperparameters, scale.
import { useEffect, useState } from "react";
import type { Found } from "../../../charts/logic/search";
import { usualParameters } from "../../../charts/logic/search";
import { Popover } from "../../../table/popover";
import type { Experiment } from "../useExperiment";
import type { Choices } from "./useChoices";
import { margins } from "./useChoices";

/** Metrics as the server names them, those that are validated first. */
export function metricsOf(experiment: Pick<Experiment, "metric_names">): string[] {
  const places = ["batches", "epochs", "epoch"];
  const groups = Object.keys(experiment.metric_names).sort((one, other) => Number(other === "validation") - Number(one === "validation") || (one < other ? -1 : 1));
  return groups.flatMap((group) => (experiment.metric_names[group] ?? []).filter((name) => !places.includes(name)).map((name) => `${group}.${name}`));
}

export function MetricChoice({ experiment, shown, choices }: { experiment: Experiment; shown: string; choices: Choices }) {
  const names = metricsOf(experiment);
  return (
    <label>
      Metric
      <select value={shown} onChange={(event) => choices.setMetric(event.target.value)}>
        {!names.includes(shown) && <option value={shown}>{shown || "–"}</option>}
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
    </label>
  );
}

/** Typed freely, asked for when the typing is done. */
function StepChoice({ choices }: { choices: Choices }) {
  const [text, setText] = useState(choices.step ? String(choices.step) : "");
  useEffect(() => setText(choices.step ? String(choices.step) : ""), [choices.step]);
  const take = () => choices.setStep(Math.max(0, Math.round(Number(text) || 0)));
  return (
    <>
      <label>
        At step
        <input
          type="number"
          min={0}
          placeholder="best"
          className="step"
          value={text}
          onChange={(event) => setText(event.target.value)}
          onBlur={take}
          onKeyDown={(event) => event.key === "Enter" && take()}
        />
      </label>
      {choices.step > 0 && (
        <label>
          give or take
          <select value={choices.margin} onChange={(event) => choices.setMargin(Number(event.target.value))}>
            {margins.map((margin) => (
              <option key={margin} value={margin}>
                {margin} %
              </option>
            ))}
          </select>
        </label>
      )}
    </>
  );
}

function ParameterChoice({ found, choices, shown }: { found: Found; choices: Choices; shown: readonly string[] }) {
  const usual = usualParameters(found.parameters);
  const all = found.parameters.map((one) => one.name);
  const set = (names: string[]) => choices.setParameters(names.length === usual.length && usual.every((name) => names.includes(name)) ? [] : names);
  return (
    <Popover label={`Hyperparameters ${shown.length} of ${all.length}`} name="Hyperparameters that are shown">
      {() => (
        <fieldset className="choose">
          <div className="row">
            <button type="button" onClick={() => set(all)}>
              All
            </button>
            <button type="button" onClick={() => set(usual)}>
              The usual
            </button>
          </div>
          {all.map((name) => (
            <label key={name}>
              <input
                type="checkbox"
                checked={shown.includes(name)}
                disabled={shown.length === 1 && shown[0] === name}
                onChange={(event) => set(event.target.checked ? all.filter((one) => one === name || shown.includes(one)) : shown.filter((one) => one !== name))}
              />
              <span className="clip">{name}</span>
            </label>
          ))}
        </fieldset>
      )}
    </Popover>
  );
}

export function SearchFilters({ found, choices, shown }: { found: Found; choices: Choices; shown: readonly string[] }) {
  return (
    <div className="chart-controls" role="group" aria-label="What of the search is shown">
      <StepChoice choices={choices} />
      <ParameterChoice found={found} choices={choices} shown={shown} />
      <label>
        <input type="checkbox" checked={choices.isLogMetric} onChange={(event) => choices.setLogMetric(event.target.checked)} />
        Log scale of the metric
      </label>
    </div>
  );
}
