// The files of a snapshot as a tree. Paths are text from users: nothing here is a path of this machine.

export interface File {
  path: string;
  size: number;
}

export interface Folder {
  kind: "folder";
  name: string;
  path: string;
  children: Entry[];
}

export interface Leaf {
  kind: "file";
  name: string;
  path: string;
  size: number;
}

export type Entry = Folder | Leaf;

/** Folders first, then files, each by name; a folder that holds only a folder is joined with it (`src/model`). */
export function tree(files: readonly File[]): Entry[] {
  const root: Folder = { kind: "folder", name: "", path: "", children: [] };
  const folders = new Map<string, Folder>([["", root]]);
  for (const file of files) {
    const parts = file.path.split("/").filter(Boolean);
    const name = parts.pop();
    if (name === undefined) continue;
    folder(folders, parts).children.push({ kind: "file", name, path: file.path, size: file.size });
  }
  return settled(root).children;
}

function folder(folders: Map<string, Folder>, parts: string[]): Folder {
  const path = parts.join("/");
  const known = folders.get(path);
  if (known) return known;
  const made: Folder = { kind: "folder", name: parts.at(-1) ?? "", path, children: [] };
  folders.set(path, made);
  folder(folders, parts.slice(0, -1)).children.push(made);
  return made;
}

function settled(given: Folder): Folder {
  const children = given.children.map((child) => (child.kind === "folder" ? joined(settled(child)) : child));
  children.sort((a, b) => Number(a.kind === "file") - Number(b.kind === "file") || a.name.localeCompare(b.name, "en"));
  return { ...given, children };
}

function joined(given: Folder): Folder {
  const [only] = given.children;
  if (given.children.length !== 1 || only?.kind !== "folder") return given;
  return { ...only, name: `${given.name}/${only.name}` };
}

/** The file that a reader wants first: the entry point's, else a README, else the first at the top. */
export function firstFile(files: readonly File[]): string | undefined {
  const top = files.filter((file) => !file.path.includes("/"));
  const wanted = [/^train\.py$/, /^main\.py$/, /^model_def\.py$/, /^experiment\.ya?ml$/, /\.py$/, /^readme/i];
  for (const pattern of wanted) {
    const found = top.find((file) => pattern.test(file.path));
    if (found) return found.path;
  }
  return (top[0] ?? files[0])?.path;
}
