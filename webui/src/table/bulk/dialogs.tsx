// Where to move experiments, and what came of an action.
import { useState } from "react";
import { useGet } from "../../api";
import { plural } from "../../format";
import { Dialog, ErrorNote, Icon, Skeleton } from "../../parts";
import type { Kind } from "../types";
import type { Result } from "./usebulk";
import { thing } from "./verbs";

interface MoveDialogProps {
  count: number;
  onMove: (projectId: number) => Promise<void>;
  onClose: () => void;
}

export function MoveDialog({ count, onMove, onClose }: MoveDialogProps) {
  const { data, error, refetch } = useGet(["projects", "all"], "/api/v1/workspaces", { query: {} });
  const [chosen, setChosen] = useState("");
  return (
    <Dialog title={`Move ${plural(count, "experiment")}`} onClose={onClose} action="Move" disabled={chosen === ""} onAction={() => onMove(Number(chosen))}>
      <ErrorNote error={error} retry={refetch} />
      {!data && !error && <Skeleton lines={2} />}
      {data && (
        <label className="field">
          Project
          <select value={chosen} onChange={(event) => setChosen(event.target.value)}>
            <option value="">Choose</option>
            {data.workspaces.map((workspace) => (
              <optgroup key={workspace.id} label={workspace.name}>
                {workspace.projects
                  .filter(({ archived }) => !archived)
                  .map((project) => (
                    <option key={project.id} value={project.id}>
                      {project.name}
                    </option>
                  ))}
              </optgroup>
            ))}
          </select>
        </label>
      )}
    </Dialog>
  );
}

export function ResultDialog({ kind, result, onClose }: { kind: Kind; result: Result; onClose: () => void }) {
  const refused = result.outcomes.filter(({ is_done }) => !is_done);
  const done = result.outcomes.length - refused.length;
  return (
    <Dialog title={`${result.act.label}: ${refused.length} of ${plural(result.outcomes.length, thing(kind))} refused`} onClose={onClose} wide>
      {done > 0 && <p className="muted">{plural(done, thing(kind))}: done.</p>}
      <ul className="outcomes">
        {refused.map(({ id, said }) => (
          <li key={id}>
            <Icon name="warning" />
            <span>{said}</span>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}
