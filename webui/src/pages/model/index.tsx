import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Model" });
  return (
    <div className="page">
      <h1>
        Model {params.id}
      </h1>
    </div>
  );
}
