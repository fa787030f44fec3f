// What stands in the table's place when no row does: why, and what to do.
import { useAbout } from "../api";
import { Empty } from "../parts";
import type { Kind, Scope } from "./types";
import type { Viewing } from "./state/useview";
import { none } from "./view/filter";
import type { Named } from "./view/sentence";
import { sentence } from "./view/sentence";

interface NothingProps {
  kind: Kind;
  scope: Scope;
  viewing: Viewing;
  columns: Named;
}

export function Nothing({ kind, scope, viewing, columns }: NothingProps) {
  const { view, change } = viewing;
  const isEmpty = useAbout().data?.is_empty ?? false;
  const what = kind === "experiments" ? "experiment" : "run";
  if (view.filter.items.length || view.search) {
    const asked = [view.filter.items.length ? sentence(view.filter, columns) : "", view.search ? `"${view.search}"` : ""].filter(Boolean).join(" and ");
    return (
      <Empty>
        <p>
          No {what} fits {asked}.
        </p>
        <button type="button" onClick={() => change({ filter: none, search: "" })}>
          Clear filter and search
        </button>
      </Empty>
    );
  }
  if (scope.experimentId !== undefined) return <Empty command={`det experiment logs -f ${scope.experimentId}`}>No trial has started yet. See what the experiment waits for:</Empty>;
  if (isEmpty) return <Empty command={kind === "experiments" ? "det experiment create experiment.yaml ." : "python train.py"}>No {what}s yet. Start one:</Empty>;
  return (
    <Empty>
      <p>
        {scope.projectId !== undefined ? `No ${what} in this project` : `No ${what}`}
        {view.archived ? "." : " that is not archived."}
      </p>
      {!view.archived && (
        <button type="button" onClick={() => change({ archived: true })}>
          Show archived
        </button>
      )}
    </Empty>
  );
}
