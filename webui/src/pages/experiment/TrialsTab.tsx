// The trials of an experiment, in the table that shows all runs.
import { RunTable } from "../../table";
import type { Experiment } from "./useExperiment";

export default function TrialsTab({ experiment }: { experiment: Experiment }) {
  return <RunTable kind="trials" experimentId={experiment.id} />;
}
