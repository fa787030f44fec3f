import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Queue" });
  return (
    <div className="page">
      <h1>
        Queue {params.id}
      </h1>
    </div>
  );
}
