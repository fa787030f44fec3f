import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Projects" });
  return (
    <div className="page">
      <h1>
        Projects {params.id}
      </h1>
    </div>
  );
}
