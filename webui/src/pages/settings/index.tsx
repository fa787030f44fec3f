import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "Settings" });
  return (
    <div className="page">
      <h1>
        Settings {params.id}
      </h1>
    </div>
  );
}
