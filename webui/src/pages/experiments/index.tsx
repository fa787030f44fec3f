import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Experiments" });
  return (
    <div className="page">
      <h1>
        Experiments {params.id}
      </h1>
    </div>
  );
}
