// All experiments, as one table.
import { useCrumbs } from "../../frame";
import { RunTable } from "../../table";

export default function Page() {
  useCrumbs({ label: "Experiments" });
  return (
    <div className="page table-page">
      {/* The line at the top says it already, for those who see it. */}
      <h1 className="visually-hidden">Experiments</h1>
      <RunTable kind="experiments" />
    </div>
  );
}
