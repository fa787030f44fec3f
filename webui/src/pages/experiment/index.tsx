import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Experiment" });
  return (
    <div className="page">
      <h1>
        Experiment {params.id}
      </h1>
    </div>
  );
}
