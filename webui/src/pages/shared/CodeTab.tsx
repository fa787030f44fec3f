// The code that an experiment was submitted with, and its configuration: a tree of files and the text of one.
import { useMemo } from "react";
import { url, useGet } from "../../api";
import { bytes, plural } from "../../format";
import { Copy, Empty, ErrorNote, Skeleton } from "../../parts";
import { codecs, useQueryState } from "../../route";
import type { Version } from "./ConfigTab";
import { ConfigTab } from "./ConfigTab";
import { FileTree } from "./code/FileTree";
import { firstFile, tree } from "./code/tree";
import { TextView } from "./TextView";
import { save } from "./save";
import "./shared.css";

export function CodeTab({ experimentId }: { experimentId: number }) {
  const path = { experiment_id: experimentId };
  const { data, error, refetch } = useGet(["code", experimentId], "/api/v1/experiments/{experiment_id}/code", { path });
  const [config, setConfig] = useQueryState("config", "", codecs.oneOf("", "effective", "submitted"));
  const [file, setFile] = useQueryState("file", "");
  const entries = useMemo(() => tree(data?.files ?? []), [data]);
  if (!data) return error ? <ErrorNote error={error} retry={refetch} /> : <Skeleton lines={10} />;
  const shown = file || firstFile(data.files) || "";
  const version: Version | "" = config || (shown ? "" : "effective");
  const open = (next: string) => {
    setConfig("");
    setFile(next);
  };
  return (
    <div className="code">
      <nav aria-label="Files" className="code-list">
        {(["effective", "submitted"] as const).map((one) => (
          <button key={one} type="button" className="plain code-entry" aria-current={version === one} onClick={() => setConfig(one)}>
            {one === "effective" ? "Configuration" : "As submitted"}
          </button>
        ))}
        <hr />
        {data.files.length === 0 && <p className="muted">{data.said}</p>}
        <FileTree entries={entries} current={version ? undefined : shown} onOpen={open} />
        {data.files.length > 0 && (
          <a className="button" href={url("/api/v1/experiments/{experiment_id}/code/download", { path })} download>
            Download {plural(data.files.length, "file")}
          </a>
        )}
      </nav>
      {version ? <ConfigTab experimentId={experimentId} version={version} /> : <FileView experimentId={experimentId} path={shown} />}
    </div>
  );
}

function FileView({ experimentId, path }: { experimentId: number; path: string }) {
  const { data, error, refetch } = useGet(["code", experimentId, path], "/api/v1/experiments/{experiment_id}/code/file", {
    path: { experiment_id: experimentId },
    query: { path },
  });
  if (error) return <ErrorNote error={error} retry={refetch} />;
  if (!data) return <Skeleton lines={12} />;
  return (
    <section className="viewer">
      <header className="row">
        <h2 className="grow clip mono" title={data.path}>
          {data.path}
        </h2>
        <span className="muted num">{bytes(data.size)}</span>
        {data.is_text && <Copy text={data.text} label="Copy the text" />}
        {data.is_text && (
          <button type="button" onClick={() => save(data.path.split("/").at(-1) ?? "file", data.text)}>
            Download
          </button>
        )}
      </header>
      {data.is_text ? <TextView text={data.text} label={data.path} /> : <Empty>This file is not text. Download all files to look at it.</Empty>}
      {!data.is_whole && <p className="muted">Only the beginning is shown: the file has {bytes(data.size)}.</p>}
    </section>
  );
}
