// What the checks of a configuration say: problems at their lines, warnings, and what would be trained.
import type { LineError } from "../parts";
import { ErrorNote, Icon } from "../parts";
import { count, plural } from "../format";
import type { Checked, Checking } from "./useChecked";

export function lineErrors(checked: Checked | undefined): LineError[] {
  return (checked?.problems ?? []).map(({ line, path, reason }) => ({ line, message: line || reason.includes(path) ? reason : `${path}: ${reason}` }));
}

/** One line that does not change its height, so that nothing jumps while one types. */
export function Checks({ checking }: { checking: Checking }) {
  const { checked, last, isBusy, error } = checking;
  const shown = checked ?? last;
  return (
    <div className="checks" aria-live="polite">
      {error ? (
        <ErrorNote error={error} />
      ) : (
        <p className={isBusy ? "checks-line muted" : "checks-line"}>
          <Verdict checked={isBusy ? undefined : checked} />
        </p>
      )}
      {shown?.warnings.map((warning) => (
        <p key={warning} className="checks-warning">
          <Icon name="warning" /> <span>{warning}</span>
        </p>
      ))}
      {shown && shown.is_fine && <Preview checked={shown} />}
    </div>
  );
}

function Verdict({ checked }: { checked: Checked | undefined }) {
  if (!checked) return "Checking…";
  if (checked.is_fine) {
    return (
      <>
        <Icon name="check" /> {checked.said || "The configuration is fine."}
      </>
    );
  }
  return checked.said || `${plural(checked.problems.length, "problem")} to mend before it can be submitted.`;
}

function Preview({ checked }: { checked: Checked }) {
  if (checked.preview.length < 2 && (checked.trials ?? 1) <= 1) return null;
  return (
    <div className="checks-preview">
      <span className="muted">Would train{checked.trials === null ? "" : ` ${plural(checked.trials, "trial")}`}</span>
      {checked.preview.map((row) => (
        <span key={row.units} className="num">
          {count(row.trials)} × {row.units}
        </span>
      ))}
    </div>
  );
}
