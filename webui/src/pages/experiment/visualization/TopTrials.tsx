// The trials whose curves are shown: hovering a row lights its curve, and back; a selection is compared.
import { memo, useCallback } from "react";
import { Swatch } from "../../../charts";
import { categoryText } from "../../../charts/logic/search";
import { short } from "../../../format";
import { Num, State } from "../../../parts";
import { Link, address, navigate } from "../../../route";
import { series } from "../../../style/theme";
import type { Curve } from "./curves";

interface TopTrialsProps {
  curves: readonly Curve[];
  metric: string;
  /** The hyperparameters that have a column. */
  parameters: readonly string[];
  lit: number | undefined;
  onLight: (trialId: number | undefined) => void;
  selected: readonly number[];
  onSelect: (next: (selected: number[]) => number[]) => void;
  /** Trials that brushes leave; undefined: all. */
  kept: ReadonlySet<number> | undefined;
  theme: string;
}

const text = (value: unknown): string => (value === undefined ? "–" : typeof value === "number" ? short(value) : categoryText(value));

interface RowProps extends Pick<TopTrialsProps, "parameters" | "onLight"> {
  curve: Curve;
  isLit: boolean;
  isSelected: boolean;
  isOut: boolean;
  onToggle: (trialId: number) => void;
  theme: string;
}

const Row = memo(function Row({ curve, parameters, isLit, isSelected, isOut, onLight, onToggle }: RowProps) {
  const id = curve.trial_id;
  return (
    <tr
      data-trial={id}
      className={[isLit ? "lit" : "", isOut ? "out" : "", isSelected ? "selected" : ""].join(" ")}
      onPointerEnter={() => onLight(id)}
      onPointerLeave={() => onLight(undefined)}
    >
      <td>
        <input type="checkbox" aria-label={`Select trial ${id}`} checked={isSelected} onChange={() => onToggle(id)} />
      </td>
      <td>
        <Swatch {...series(id)} /> <Link to={`/trials/${id}`}>{id}</Link>
      </td>
      <td>
        <State state={curve.state} />
      </td>
      <td className="num">
        <Num value={curve.best} />
      </td>
      <td className="num">{text(curve.steps.at(-1))}</td>
      {parameters.map((name) => (
        <td key={name} className="num" title={text(curve.hparams[name])}>
          {text(curve.hparams[name])}
        </td>
      ))}
    </tr>
  );
});

export function TopTrials(props: TopTrialsProps) {
  const { curves, metric, parameters, selected, onSelect, lit, kept } = props;
  const toggle = useCallback((id: number) => onSelect((now) => (now.includes(id) ? now.filter((one) => one !== id) : [...now, id])), [onSelect]);
  return (
    <div className="top-trials">
      <div className="row">
        <span className="muted num">{selected.length ? `${selected.length} selected` : "Select trials to see them alone, or to compare them."}</span>
        {selected.length > 0 && (
          <>
            <button type="button" disabled={selected.length < 2} onClick={() => navigate(address("/compare", { trials: selected.join(",") }))}>
              Compare
            </button>
            <button type="button" onClick={() => onSelect(() => [])}>
              Clear
            </button>
          </>
        )}
      </div>
      <div className="top-trials-rows" tabIndex={0} role="region" aria-label="Trials of these curves">
        <table>
          <thead>
            <tr>
              <th>
                <span className="visually-hidden">Selected</span>
              </th>
              <th>Trial</th>
              <th>State</th>
              <th className="num">{metric}</th>
              <th className="num">Batches</th>
              {parameters.map((name) => (
                <th key={name} className="num">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {curves.map((curve) => (
              <Row
                key={curve.trial_id}
                curve={curve}
                parameters={parameters}
                isLit={curve.trial_id === lit}
                isSelected={selected.includes(curve.trial_id)}
                isOut={kept !== undefined && !kept.has(curve.trial_id)}
                onLight={props.onLight}
                onToggle={toggle}
                theme={props.theme}
              />
            ))}
          </tbody>
        </table>
      </div>
    </div>
  );
}
