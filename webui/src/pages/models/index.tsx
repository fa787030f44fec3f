import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Models" });
  return (
    <div className="page">
      <h1>
        Models {params.id}
      </h1>
    </div>
  );
}
