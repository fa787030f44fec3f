// All trials of all experiments, one row each.
import { useCrumbs } from "../../frame";
import { RunTable } from "../../table";

export default function Page() {
  useCrumbs({ label: "Runs" });
  return (
    <div className="page table-page">
      {/* The line at the top says it already, for those who see it. */}
      <h1 className="visually-hidden">Runs</h1>
      <RunTable kind="trials" />
    </div>
  );
}
