// Move experiments to another project.
import { useState } from "react";
import { api, queries, useGet } from "../api";
import { plural } from "../format";
import { Dialog, ErrorNote, Skeleton, toast } from "../parts";
import { news } from "../parts/act";
import "./dialogs.css";

interface MoveDialogProps {
  experimentIds: number[];
  /** Where they are now, if in one place. */
  projectId?: number;
  onClose: () => void;
  onSubmitted?: () => void;
}

export function MoveDialog({ experimentIds, projectId, onClose, onSubmitted }: MoveDialogProps) {
  const { data, error } = useGet(["projects", "workspaces"], "/api/v1/workspaces", {});
  const [chosen, setChosen] = useState<number>();
  const submit = async () => {
    const answer = await api.post("/api/v1/experiments/actions", { body: { action: "move", ids: experimentIds, project_id: chosen ?? null } });
    const { good, bad } = news(answer);
    void queries.invalidateQueries();
    if (bad) throw new Error(bad);
    toast(good);
    onSubmitted?.();
  };
  const one = experimentIds.length === 1;
  return (
    <Dialog title={one ? `Move experiment ${experimentIds[0]}` : `Move ${plural(experimentIds.length, "experiment")}`} action="Move" onAction={submit} onClose={onClose} disabled={chosen === undefined}>
      <ErrorNote error={error} />
      {!data && !error && <Skeleton />}
      {data && (
        <label className="field">
          To project
          <select value={chosen ?? ""} onChange={(event) => setChosen(Number(event.target.value))}>
            <option value="" disabled>
              Choose a project
            </option>
            {data.workspaces.map((workspace) => (
              <optgroup key={workspace.id} label={workspace.name}>
                {workspace.projects.map((project) => (
                  <option key={project.id} value={project.id} disabled={project.id === projectId || project.archived}>
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
