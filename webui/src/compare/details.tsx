// How each is doing, and what it was given, side by side.
import type { ReactNode } from "react";
import { count, plural, toNumber } from "../format";
import { Duration, Num, State, Time } from "../parts";
import { Link } from "../route";
import { DifferenceLine } from "./differences";
import { Heading, Line, SideBySide } from "./sidebyside";
import type { Item } from "./usecomparison";
import type { Comparison } from "./values";
import { best } from "./values";

export function Details({ answer, items }: { answer: Comparison; items: readonly Item[] }) {
  const metrics = new Set(items.map(({ trial }) => trial.searcher_metric));
  const metric = metrics.size === 1 ? [...metrics][0] : undefined;
  const values = items.flatMap(({ id, trial }) => {
    const value = toNumber(trial.best_metric);
    return value === undefined || !Number.isFinite(value) ? [] : [[id, value] as const];
  });
  const top = metrics.size === 1 ? best(values, items[0]?.trial.smaller_is_better ?? true) : new Set<number>();
  const lines: [string, (item: Item) => ReactNode, boolean][] = [
    ["State", ({ trial }) => <State state={trial.state} />, false],
    [metric ? `Best ${metric}` : "Best value of its metric", ({ trial }) => <Num value={trial.best_metric} />, true],
    ["Batches", ({ trial }) => count(trial.batches), true],
    ["Checkpoints", ({ trial }) => count(trial.checkpoint_count), true],
    ["Started", ({ trial }) => <Time at={trial.start_time} />, false],
    ["Duration", ({ trial }) => <Duration seconds={trial.seconds} />, true],
    ["Experiment", ({ trial }) => <Link to={`/experiments/${trial.experiment_id}`}>{trial.experiment} #{trial.experiment_id}</Link>, false],
    ["Trial", ({ id }) => <Link to={`/trials/${id}`}>{id}</Link>, false],
  ];
  return (
    <SideBySide items={items} label="Details">
      <tbody>
        {lines.map(([name, show, isNumber]) => (
          <Line key={name} name={name} items={items}>
            {(item) => (
              <td key={item.id} className={[isNumber ? "num" : "", name.startsWith("Best") && top.has(item.id) ? "best" : ""].join(" ")}>
                {show(item)}
              </td>
            )}
          </Line>
        ))}
      </tbody>
      {(["hparams", "metrics"] as const).map((section) => (
        <tbody key={section}>
          <Heading title={section === "hparams" ? "Hyperparameters" : "Metrics"} count={items.length} />
          {answer.differences
            .filter((difference) => difference.section === section)
            .map((difference) => (
              <DifferenceLine key={difference.key} difference={difference} items={items} />
            ))}
          {(answer.equal[section] ?? 0) > 0 && (
            <tr className="folded">
              <th scope="row" className="key">
                {plural(answer.equal[section] ?? 0, "equal value")}
              </th>
              <td colSpan={items.length + 1} />
            </tr>
          )}
        </tbody>
      ))}
    </SideBySide>
  );
}
