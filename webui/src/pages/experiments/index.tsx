// All experiments, as one table.
import { useCrumbs } from "../../frame";
import { RunTable } from "../../table";

export default function Page() {
  useCrumbs({ label: "Experiments" });
  return (
    <div className="page table-page">
      <RunTable kind="experiments" />
    </div>
  );
}
