// Where the dots of an ASHA search lie: one row per rung, the highest on top, as one climbs.
import type { components } from "../../api";
import { toNumber } from "../../format";

export type Rungs = components["schemas"]["Rungs"];
type Rung = Rungs["rungs"][number];

export type DotKind = "passed" | "stopped" | "waiting" | "there";
export interface Dot {
  trialId: number;
  x: number;
  y: number;
  kind: DotKind;
  value: number | undefined;
}
export interface Row {
  key: string;
  top: number;
  height: number;
  /** "16 epochs" */
  label: string;
  /** "3 of 8 went on" */
  said: string;
  dots: Dot[];
  /** The first row of a bracket says so, if there are several. */
  bracket?: string;
}
export interface Ladder {
  rows: Row[];
  height: number;
  /** Radius of a dot. */
  radius: number;
  left: number;
}

const head = 20;

function kindOf(trial: Rung["trials"][number], isTop: boolean): DotKind {
  if (isTop) return "there";
  if (trial.is_stopped_here) return "stopped";
  return trial.is_waiting ? "waiting" : "passed";
}

function sayRung(rung: Rung, isTop: boolean): string {
  if (isTop) return rung.arrived === 1 ? "1 reached the top" : `${rung.arrived} reached the top`;
  const waiting = rung.waiting ? `, ${rung.waiting} waiting` : "";
  return `${rung.passed} of ${rung.arrived} went on${waiting}`;
}

/** Best first; those without a value last. */
function inOrder(rung: Rung, smallerIsBetter: boolean): Rung["trials"] {
  const sign = smallerIsBetter ? 1 : -1;
  const key = (value: Rung["trials"][number]["value"]) => {
    const number = toNumber(value);
    return number === undefined || Number.isNaN(number) ? Infinity : number * sign;
  };
  return [...rung.trials].sort((one, other) => {
    const [a, b] = [key(one.value), key(other.value)];
    return a === b ? one.trial_id - other.trial_id : a < b ? -1 : 1;
  });
}

export function ladder(rungs: readonly Rung[], width: number, smallerIsBetter: boolean): Ladder {
  const most = Math.max(0, ...rungs.map((rung) => rung.trials.length));
  const radius = most > 400 ? 2 : most > 120 ? 3 : 4.5;
  const pitch = radius * 2 + 3;
  const left = 84;
  const perLine = Math.max(1, Math.floor((width - left) / pitch));
  const brackets = [...new Set(rungs.map((rung) => rung.bracket))].sort((one, other) => one - other);
  const rows: Row[] = [];
  let top = 0;
  for (const bracket of brackets) {
    const own = rungs.filter((rung) => rung.bracket === bracket).sort((one, other) => other.rung - one.rung);
    const highest = own[0]?.rung;
    for (const [place, rung] of own.entries()) {
      const isFirst = place === 0 && brackets.length > 1;
      if (isFirst) top += head;
      const lines = Math.max(1, Math.ceil(rung.trials.length / perLine));
      const isTop = rung.rung === highest;
      const dots = inOrder(rung, smallerIsBetter).map((trial, at) => ({
        trialId: trial.trial_id,
        x: left + (at % perLine) * pitch + radius,
        y: top + 22 + Math.floor(at / perLine) * pitch + radius,
        kind: kindOf(trial, isTop),
        value: toNumber(trial.value),
      }));
      const height = 28 + lines * pitch;
      rows.push({ key: `${bracket} ${rung.rung}`, top, height, label: rung.units, said: sayRung(rung, isTop), dots, ...(isFirst ? { bracket: `bracket ${bracket}` } : {}) });
      top += height;
    }
  }
  return { rows, height: top, radius, left };
}
