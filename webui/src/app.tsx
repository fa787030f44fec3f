// From the address to the page that shows it.
import { QueryClientProvider } from "@tanstack/react-query";
import type { ComponentType } from "react";
import { Suspense, lazy } from "react";
import { queries } from "./api";
import { useAllowed } from "./api/session";
import { Frame, useCrumbs } from "./frame";
import { Boundary } from "./frame/boundary";
import { Command, Skeleton } from "./parts";
import type { PageName, PageProps } from "./route";
import { Link, match, useLocation } from "./route";

type Load = () => Promise<{ default: ComponentType<PageProps> }>;

// Written out, so that each page becomes a file of its own.
const loads: Record<PageName, Load> = {
  home: () => import("./pages/home"),
  experiments: () => import("./pages/experiments"),
  experiment: () => import("./pages/experiment"),
  trials: () => import("./pages/trials"),
  trial: () => import("./pages/trial"),
  compare: () => import("./pages/compare"),
  models: () => import("./pages/models"),
  model: () => import("./pages/model"),
  queue: () => import("./pages/queue"),
  tasks: () => import("./pages/tasks"),
  projects: () => import("./pages/projects"),
  project: () => import("./pages/project"),
  settings: () => import("./pages/settings"),
};
const pages = Object.fromEntries(Object.entries(loads).map(([name, load]) => [name, lazy(load)])) as unknown as Record<
  PageName,
  ComponentType<PageProps>
>;

function Shown() {
  const { path } = useLocation();
  const found = match(path);
  if (!found) return <Nowhere path={path} />;
  const Page = pages[found.page];
  // Another experiment is another page: nothing of the one before may show through. Another tab is not.
  const key = `${found.page} ${found.params.id ?? ""}`;
  return (
    <Boundary key={key}>
      <Suspense fallback={<Loading />}>
        <Page params={found.params} />
      </Suspense>
    </Boundary>
  );
}

function Loading() {
  return (
    <div className="page">
      <Skeleton lines={8} />
    </div>
  );
}

function Nowhere({ path }: { path: string }) {
  useCrumbs({ label: "Not found" });
  return (
    <div className="lone">
      <h1>There is no page here</h1>
      <p>
        Nothing is shown under <code>{path}</code>. The link may be old or cut short. <Link to="/">Go home</Link>, or search with <kbd>/</kbd>.
      </p>
    </div>
  );
}

function Locked() {
  return (
    <div className="lone stack">
      <h1>Open the link again</h1>
      <p>
        This browser has no valid token for the server. Open the link that <code>det ui</code> printed in its terminal once more; if the server was
        started anew, its link is new too.
      </p>
      <Command>det ui</Command>
    </div>
  );
}

export function App() {
  if (!useAllowed()) return <Locked />;
  return (
    <QueryClientProvider client={queries}>
      <Frame>
        <Shown />
      </Frame>
    </QueryClientProvider>
  );
}
