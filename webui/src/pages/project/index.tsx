import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Project" });
  return (
    <div className="page">
      <h1>
        Project {params.id}
      </h1>
    </div>
  );
}
