// The experiments of a project.
import { Empty } from "../../parts";
import { Link, address } from "../../route";
import type { ProjectAnswer } from ".";

export function ProjectExperiments({ project }: { project: ProjectAnswer }) {
  if (project.experiments === 0) {
    return (
      <Empty command={`det experiment create experiment.yaml . --project_id ${project.id}`}>
        No experiment in this project yet. Move one here, or submit one into it:
      </Empty>
    );
  }
  return <Link to={address("/experiments", { project: project.id })}>Open in the table</Link>;
}
