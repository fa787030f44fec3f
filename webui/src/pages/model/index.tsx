// One model: its versions, how to use it, and what was written about it.
import { useState } from "react";
import type { components } from "../../api";
import { api, queries, useGet } from "../../api";
import { CheckpointDialog } from "../../dialogs/CheckpointDialog";
import { ModelEditDialog } from "../../dialogs/ModelEditDialog";
import { RegisterVersionDialog } from "../../dialogs/RegisterVersionDialog";
import { flat } from "../../dialogs/search/form";
import { ThingHeader, useCrumbs } from "../../frame";
import { plural } from "../../format";
import { Chip, Command, Empty, ErrorNote, Icon, Menu, Skeleton, Time, act, confirm, toast } from "../../parts";
import type { PageProps } from "../../route";
import { navigate, useQueryState } from "../../route";
import { Action } from "../shared/Action";
import { Notes } from "../shared/NotesTab";
import { asText } from "../shared/JsonValue";
import { quote } from "../shared/quote";
import { Versions } from "./Versions";
import "../models/models.css";

type Model = components["schemas"]["ModelAnswer"];
type Detail = components["schemas"]["ModelDetail"];

export default function ModelPage({ params }: PageProps) {
  const id = Number(params.id ?? params.name);
  const tab = params.tab ?? "versions";
  const { data, error, refetch } = useGet(["models", id], "/api/v1/models/{model_id}", { path: { model_id: id } });
  useCrumbs({ label: "Models", to: "/models" }, { label: data?.model.name ?? `Model ${id}` });
  if (!data) return <div className="page">{error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={8} />}</div>;
  const { model } = data;
  return (
    <div className="page">
      <ThingHeader
        title={model.name}
        facts={
          <>
            <span className="num">{plural(model.num_versions, "version")}</span>
            {model.archived && <span className="muted">archived</span>}
            {model.labels.map((tag) => (
              <Chip key={tag}>{tag}</Chip>
            ))}
          </>
        }
        actions={<ModelActions model={model} />}
        aside={
          <>
            {model.owner} · made <Time at={model.creation_time} />
          </>
        }
        tabs={[
          { key: "versions", label: "Versions" },
          { key: "notes", label: "Notes" },
        ]}
        current={tab}
        to={(key) => (key === "versions" ? `/models/${id}` : `/models/${id}/${key}`)}
      />
      {tab === "notes" ? <ModelNotes model={model} /> : <Body detail={data} />}
    </div>
  );
}

const fresh = () => void queries.invalidateQueries({ queryKey: ["models"] });

function ModelActions({ model }: { model: Model }) {
  const [open, setOpen] = useState<"edit" | "register">();
  const path = { model_id: model.id };
  const why = model.archived ? "This model is archived. Take it out of the archive first." : "";
  const archive = () => act(() => api.patch("/api/v1/models/{model_id}", { path, body: { archived: !model.archived } }));
  const remove = async () => {
    const lost = `${plural(model.num_versions, "version")} and all that was written about the model are lost. The checkpoints stay.`;
    if (!(await confirm({ title: `Delete ${model.name}?`, lost, action: "Delete" }))) return;
    if (await act(() => api.delete("/api/v1/models/{model_id}", { path }))) navigate("/models");
  };
  return (
    <>
      <Action why={why} onAct={() => setOpen("register")}>
        Register a version
      </Action>
      <Action why={why} onAct={() => setOpen("edit")}>
        Edit
      </Action>
      <Menu
        name="More actions"
        label={<Icon name="more" />}
        items={[
          { label: model.archived ? "Take out of the archive" : "Archive", onSelect: () => void archive() },
          { label: "Delete", danger: true, apart: true, onSelect: () => void remove() },
        ]}
      />
      {open === "edit" && <ModelEditDialog model={model} onClose={() => setOpen(undefined)} />}
      {open === "register" && <RegisterVersionDialog model={model.name} onClose={() => setOpen(undefined)} />}
    </>
  );
}

function ModelNotes({ model }: { model: Model }) {
  const save = async (notes: string) => {
    const done = await api.patch("/api/v1/models/{model_id}", { path: { model_id: model.id }, body: { notes } });
    fresh();
    toast(done.said);
  };
  return <Notes text={model.notes} onSave={save} why={model.archived ? "This model is archived. Take it out of the archive first." : ""} />;
}

function Body({ detail: { model, versions, use_lines } }: { detail: Detail }) {
  const [open, setOpen] = useQueryState("checkpoint", "");
  const metadata = flat(model.metadata);
  return (
    <div className="model-body">
      <section>
        {versions.length === 0 && <Empty command={`det model register-version ${quote(model.name)} CHECKPOINT_ID`}>No version yet. Register a checkpoint:</Empty>}
        {versions.length > 0 && <Versions model={model} versions={versions} onOpen={(uuid) => setOpen(uuid, { push: true })} />}
      </section>
      <div className="model-side">
        {model.description && (
          <section>
            <h2>Description</h2>
            <p className="model-about">{model.description}</p>
          </section>
        )}
        {use_lines && (
          <section>
            <h2>Use it</h2>
            <Command block>{use_lines}</Command>
          </section>
        )}
        {metadata.length > 0 && (
          <section>
            <h2>Metadata</h2>
            <dl className="facts">
              {metadata.map(([name, value]) => (
                <div key={name} className="pair">
                  <dt className="clip">{name}</dt>
                  <dd className="mono">{asText(value)}</dd>
                </div>
              ))}
            </dl>
          </section>
        )}
      </div>
      {open && <CheckpointDialog uuid={open} onClose={() => setOpen("")} />}
    </div>
  );
}
