import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Compare" });
  return (
    <div className="page">
      <h1>
        Compare {params.id}
      </h1>
    </div>
  );
}
