// What the checks of a configuration say: problems at their lines, warnings, and what would be trained.
import type { LineError } from "../parts";
import { ErrorNote, Icon } from "../parts";
import { count, plural } from "../format";
import type { Checked, Checking } from "./useChecked";

/** The problems as one reads them: "max_restarts is a text, ...", in the order of their lines. */
export function lineErrors(checked: Checked | undefined): LineError[] {
  const known = (checked?.problems ?? []).map(({ line, path, reason }) => {
    const place = path.replace(/^<config>\.?/, "");
    const said = reason.replace(/^<config>: /, "");
    return { line, message: place === "" || said.startsWith(place) ? said : `${place} ${said}` };
  });
  return known.sort((a, b) => (a.line ?? 0) - (b.line ?? 0));
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
  const rows = checked.preview.map((row) => ({ trials: row.trials, length: row.units.replace(/^train /, "") }));
  if (checked.trials === null || rows.length === 0) return checked.said;
  const all = `Would train ${plural(checked.trials, "trial")}`;
  if (rows.length === 1) return rows[0]?.length === "to completion" ? `${all} to completion.` : `${all}, ${rows[0]?.length} each.`;
  return `${all}: ${rows.map((row) => `${count(row.trials)} × ${row.length}`).join(", ")}.`;
}

function Verdict({ checked }: { checked: Checked | undefined }) {
  if (!checked) return "Checking…";
  return (
    <>
      {checked.is_fine && <Icon name="check" />} {verdict(checked)}
    </>
  );
}
