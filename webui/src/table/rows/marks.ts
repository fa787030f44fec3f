// The colours that selected rows have in the comparison below, to find a curve's row again.
import { slots } from "../../compare/values";
import { most } from "../../compare/tabs";
import type { Kind, TableRow } from "../types";

/** By the number of the row. In a comparison an experiment is its best trial, so that is what has the colour. */
export function marksOf(kind: Kind, ids: readonly number[], chosen: readonly Pick<TableRow, "id" | "trial_id">[]): Map<number, string> {
  const trials = new Map(chosen.map(({ id, trial_id }) => [id, kind === "trials" ? id : trial_id]));
  const compared = ids.slice(0, most).flatMap((id) => {
    const trial = trials.get(id);
    return trial ? [{ id, trial }] : [];
  });
  if (compared.length < 2) return new Map();
  const places = slots(compared.map(({ trial }) => trial));
  return new Map(compared.map(({ id, trial }) => [id, `var(--series-${((places.get(trial) ?? 0) % 8) + 1})`]));
}
