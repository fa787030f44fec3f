// What the checks of a configuration say: problems at their lines, warnings, and what would be trained.
import type { LineError } from "../parts";
import { ErrorNote, Icon } from "../parts";
import { count, plural } from "../format";
import type { Checked, Checking } from "./useChecked";

export function lineErrors(checked: Checked | undefined): LineError[] {
  return (checked?.problems ?? []).map(({ line, path, reason }) => ({ line, message: reason.includes(path) ? reason : `${path}: ${reason}` }));
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
    </div>
  );
}

/** "Would train 16 trials: 12 × 5 epochs, 4 × 20 epochs.", or the server's own sentence where nothing can be counted. */
export function verdict(checked: Checked): string {
  if (!checked.is_fine) return `${plural(checked.problems.length, "problem")} to mend before it can be submitted.`;
  if (checked.trials === null || checked.preview.length === 0) return checked.said;
  const rows = checked.preview.map((row) => `${count(row.trials)} × ${row.units}`);
  return `Would train ${plural(checked.trials, "trial")}: ${rows.join(", ")}.`;
}

function Verdict({ checked }: { checked: Checked | undefined }) {
  if (!checked) return "Checking…";
  return (
    <>
      {checked.is_fine && <Icon name="check" />} {verdict(checked)}
    </>
  );
}
