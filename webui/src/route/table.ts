// Which path shows which page. A page lives in src/pages/<name>/index.tsx and receives its parameters as props.
export const routes = {
  home: "/",
  experiments: "/experiments",
  experiment: "/experiments/:id/:tab?",
  trials: "/trials",
  trial: "/trials/:id/:tab?",
  compare: "/compare",
  models: "/models",
  model: "/models/:id/:tab?",
  queue: "/queue",
  tasks: "/tasks",
  projects: "/projects",
  project: "/projects/:id/:tab?",
  settings: "/settings",
} as const;

export type PageName = keyof typeof routes;
export type Params = Record<string, string>;

/** What every page receives: the named parts of its path (decoded), for example `{ id: "7", tab: "logs" }`. */
export interface PageProps {
  params: Params;
}

function decoded(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** The parameters when `path` fits `pattern`, else undefined. `:id` must be a number, a `?` part may be missing. */
export function fit(pattern: string, path: string): Params | undefined {
  const want = pattern.split("/").filter(Boolean);
  const have = path.split("/").filter(Boolean);
  if (have.length > want.length) return undefined;
  const params: Params = {};
  for (const [place, part] of want.entries()) {
    const text = have[place];
    if (!part.startsWith(":")) {
      if (text !== part) return undefined;
      continue;
    }
    const name = part.replace(/^:|\?$/g, "");
    if (text === undefined) {
      if (!part.endsWith("?")) return undefined;
      continue;
    }
    const value = decoded(text);
    if (value === undefined || (name === "id" && !/^\d+$/.test(value))) return undefined;
    params[name] = value;
  }
  return params;
}

/** The page for a path, or undefined when there is none. */
export function match(path: string): { page: PageName; params: Params } | undefined {
  for (const [page, pattern] of Object.entries(routes)) {
    const params = fit(pattern, path);
    if (params) return { page: page as PageName, params };
  }
  return undefined;
}
