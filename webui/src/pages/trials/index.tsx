// All trials of all experiments, one row each.
import { useCrumbs } from "../../frame";
import { RunTable } from "../../table";

export default function Page() {
  useCrumbs({ label: "Runs" });
  return (
    <div className="page table-page">
      <RunTable kind="trials" />
    </div>
  );
}
