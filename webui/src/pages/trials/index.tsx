import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Runs" });
  return (
    <div className="page">
      <h1>
        Runs {params.id}
      </h1>
    </div>
  );
}
