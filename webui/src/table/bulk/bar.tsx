// The bar below the table while something is selected: how many, and what can be done with them.
import { useReadOnly } from "../../api";
import { plural } from "../../format";
import type { Item } from "../../parts";
import { Menu, Tip } from "../../parts";
import type { Kind } from "../types";
import { MoveDialog, ResultDialog } from "./dialogs";
import type { Bulk } from "./usebulk";
import type { Act, Chosen } from "./verbs";
import { acts, apply, thing } from "./verbs";

interface BarProps {
  kind: Kind;
  ids: readonly number[];
  /** The selected runs as far as they are known. */
  chosen: readonly Chosen[];
  bulk: Bulk;
  isNarrow: boolean;
  onClear: () => void;
}

export function BulkBar({ kind, ids, chosen, bulk, isNarrow, onClear }: BarProps) {
  const readOnly = useReadOnly();
  const state = (act: Act) => {
    const { fitting, reason } = apply(act, chosen);
    return { fitting, reason: readOnly || reason };
  };
  const all = acts(kind);
  const item = (act: Act): Item => ({
    label: act.label,
    danger: Boolean(act.isDanger),
    apart: act.verb === "delete",
    disabled: state(act).reason || undefined,
    onSelect: () => void bulk.run(act, chosen),
  });
  const inMenu = isNarrow ? all : all.filter(({ isFirst }) => !isFirst);
  return (
    <>
      <span className="num">{isNarrow ? ids.length : plural(ids.length, thing(kind))} selected</span>
      {!isNarrow &&
        all
          .filter(({ isFirst }) => isFirst)
          .map((act) => {
            const { reason } = state(act);
            return (
              <Tip key={act.verb} text={reason}>
                <button type="button" className={act.isDanger ? "danger" : ""} disabled={reason !== ""} onClick={() => void bulk.run(act, chosen)}>
                  {act.label}
                </button>
              </Tip>
            );
          })}
      {inMenu.length > 0 && <Menu label={isNarrow ? "Actions" : "More"} items={inMenu.map(item)} />}
      <button type="button" className="plain" onClick={onClear}>
        Clear
      </button>
      {bulk.moving && <MoveDialog count={bulk.moving.length} onMove={bulk.move} onClose={bulk.stopMoving} />}
      {bulk.result && <ResultDialog kind={kind} result={bulk.result} onClose={bulk.close} />}
    </>
  );
}
