// A comparison as the charts of a search take it.
import type { Found, Parameter } from "../charts/logic/search";
import { categoryText } from "../charts/logic/search";
import { toNumber } from "../format";
import type { Comparison } from "./values";

/** As many axes as can be read beside each other. */
const most = 10;

/** Whether it was searched by magnitude is not known here; values a hundredfold apart read better so. */
function parameter(name: string, values: readonly unknown[]): Parameter {
  const given = values.filter((value) => value !== undefined && value !== null);
  const isNumber = given.every((value) => typeof value === "number" && Number.isFinite(value));
  const numbers = isNumber ? (given as number[]) : [];
  const isLog = numbers.length > 1 && Math.min(...numbers) > 0 && Math.max(...numbers) / Math.min(...numbers) >= 100;
  return {
    name,
    kind: !isNumber || !given.length ? "category" : isLog ? "log" : "linear",
    categories: isNumber ? [] : [...new Set(given.map(categoryText))].sort(),
    isWhole: isNumber && numbers.every(Number.isInteger),
    importance: null,
  };
}

/** The value of an item whose metric is another one than the first's has no place on the axis. */
export function foundIn(answer: Comparison, items: readonly { id: number; name: string }[]): Found {
  const differing = answer.differences.filter(({ section, key }) => section === "hparams" && answer.hyperparameters.includes(key)).slice(0, most);
  const trials = new Map(answer.trials.map((trial) => [trial.id, trial]));
  const first = answer.trials[0];
  return {
    metric: { name: first?.searcher_metric ?? "best value", smallerIsBetter: first?.smaller_is_better ?? true },
    parameters: differing.map(({ key, values }) => parameter(key, items.map(({ id }) => values[String(id)]))),
    results: items.map(({ id, name }) => {
      const trial = trials.get(id);
      const value = trial?.searcher_metric === first?.searcher_metric ? toNumber(trial?.best_metric) : undefined;
      return {
        trialId: id,
        name,
        values: Object.fromEntries(differing.flatMap(({ key, values }) => (String(id) in values ? [[key, values[String(id)]]] : []))),
        metric: value !== undefined && Number.isFinite(value) ? value : null,
      };
    }),
  };
}
