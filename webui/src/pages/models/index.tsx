// The model registry: checkpoints that were given a name.
import { useState } from "react";
import type { components } from "../../api";
import { useGet } from "../../api";
import { NewModelDialog } from "../../dialogs/NewModelDialog";
import { useCrumbs } from "../../frame";
import { plural } from "../../format";
import { Chip, Empty, ErrorNote, Num, Skeleton, Time } from "../../parts";
import { Link, codecs, navigate, useQueryState } from "../../route";
import { Pager } from "../shared/Pager";
import { useRested } from "../shared/useRested";
import "./models.css";

type Model = components["schemas"]["ModelAnswer"];
const size = 100;

export default function ModelsPage() {
  useCrumbs({ label: "Models" });
  const [search, setSearch] = useQueryState("q", "");
  const [archived, setArchived] = useQueryState("archived", false, codecs.flag);
  const [offset, setOffset] = useQueryState("from", 0, codecs.integer);
  const [isMaking, setMaking] = useState(false);
  const name = useRested(search.trim(), 250);
  const { data, error, refetch } = useGet(["models", name, archived, offset], "/api/v1/models", { query: { name, archived, offset, limit: size } });
  const find = (text: string) => {
    setOffset(0);
    setSearch(text);
  };
  return (
    <div className="page models">
      <div className="row models-bar">
        <h1>Models</h1>
        <input type="search" value={search} placeholder="Filter by name" aria-label="Filter by name" onChange={(event) => find(event.target.value)} />
        <label className="row">
          <input type="checkbox" checked={archived} onChange={(event) => setArchived(event.target.checked)} /> archived too
        </label>
        {data && <span className="muted num">{plural(data.total, "model")}</span>}
        <span className="grow" />
        <button type="button" onClick={() => setMaking(true)}>
          New model
        </button>
      </div>
      {!data && (error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={6} />)}
      {data?.total === 0 && <NoModels isFiltered={name !== ""} />}
      {data && data.total > 0 && <ModelTable models={data.models} />}
      {data && <Pager offset={offset} size={size} total={data.total} onMove={setOffset} />}
      {isMaking && <NewModelDialog onClose={() => setMaking(false)} onMade={(id) => navigate(`/models/${id}`)} />}
    </div>
  );
}

function NoModels({ isFiltered }: { isFiltered: boolean }) {
  if (isFiltered) return <Empty>No model has this in its name.</Empty>;
  return <Empty command="det model create my-model">No models yet. Register a checkpoint from its dialog on a trial's page, or make a model:</Empty>;
}

function ModelTable({ models }: { models: Model[] }) {
  return (
    <div className="scroll">
      <table>
        <thead>
          <tr>
            <th>Name</th>
            <th className="num">Versions</th>
            <th>Description</th>
            <th>Tags</th>
            <th>Owner</th>
            <th>Changed</th>
          </tr>
        </thead>
        <tbody>
          {models.map((model) => (
            <tr key={model.id}>
              <td className="clip model-name">
                <Link to={`/models/${model.id}`} title={model.name}>
                  {model.name}
                </Link>{" "}
                {model.archived && <span className="muted">archived</span>}
              </td>
              <td className="num">
                <Num value={model.num_versions} />
              </td>
              <td className="clip model-text" title={model.description}>
                {model.description}
              </td>
              <td>
                <Tags tags={model.labels} />
              </td>
              <td className="clip model-owner">{model.owner}</td>
              <td>
                <Time at={model.last_updated_time} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Tags({ tags }: { tags: string[] }) {
  const shown = tags.slice(0, 3);
  return (
    <span className="row model-tags" title={tags.join(", ")}>
      {shown.map((tag) => (
        <Chip key={tag}>{tag}</Chip>
      ))}
      {tags.length > shown.length && <span className="muted">+{tags.length - shown.length}</span>}
    </span>
  );
}
