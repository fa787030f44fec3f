// The tree of a snapshot's files. Folders open and close; a file is opened by its button.
import { bytes } from "../../../format";
import type { Entry } from "./tree";

interface FileTreeProps {
  entries: Entry[];
  current: string | undefined;
  onOpen: (path: string) => void;
}

export function FileTree({ entries, current, onOpen }: FileTreeProps) {
  return (
    <ul className="file-tree">
      {entries.map((entry) => (
        <li key={`${entry.kind} ${entry.path}`}>
          {entry.kind === "folder" ? (
            <details open={entries.length < 20 || current?.startsWith(`${entry.path}/`)}>
              <summary className="clip">{entry.name}</summary>
              <FileTree entries={entry.children} current={current} onOpen={onOpen} />
            </details>
          ) : (
            <button type="button" className="plain code-entry" aria-current={entry.path === current} title={`${entry.path}, ${bytes(entry.size)}`} onClick={() => onOpen(entry.path)}>
              <span className="clip">{entry.name}</span>
            </button>
          )}
        </li>
      ))}
    </ul>
  );
}
