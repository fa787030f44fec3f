import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Home" });
  return (
    <div className="page">
      <h1>
        Home {params.id}
      </h1>
    </div>
  );
}
