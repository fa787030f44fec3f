import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Trial" });
  return (
    <div className="page">
      <h1>
        Trial {params.id}
      </h1>
    </div>
  );
}
