import { useCrumbs } from "../../frame";
import type { PageProps } from "../../route";

export default function Page({ params }: PageProps) {
  useCrumbs({ label: "TensorBoards" });
  return (
    <div className="page">
      <h1>
        TensorBoards {params.id}
      </h1>
    </div>
  );
}
