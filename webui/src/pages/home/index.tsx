// Home: what runs now, what failed, what ended since the last visit, and where to go on.
import { useEffect, useState } from "react";
import type { Answer } from "../../api";
import { useAbout, useGet } from "../../api";
import { plural } from "../../format";
import { useCrumbs } from "../../frame";
import { Command, Empty, ErrorNote, Skeleton, Time } from "../../parts";
import { Link } from "../../route";
import { Ended, Failed } from "./ended";
import "./home.css";
import { Running } from "./running";
import { look } from "./visit";

export type HomeAnswer = Answer<"/api/v1/home">;

function useSince(): string | undefined {
  const [since] = useState(look);
  useEffect(() => {
    const timer = setInterval(() => !document.hidden && look(), 60_000);
    return () => clearInterval(timer);
  }, []);
  return since;
}

function FirstRun() {
  return (
    <section>
      <h2>No runs yet</h2>
      <Empty>
        <p>A script that trains with Resolute is recorded by itself. Start one, and it appears here while it runs:</p>
        <p>
          <Command>python train.py</Command>
        </p>
        <p>Or let a search try many settings:</p>
        <Command>det experiment create experiment.yaml .</Command>
      </Empty>
    </section>
  );
}

function Projects({ projects }: { projects: HomeAnswer["projects"] }) {
  if (projects.length === 0) return null;
  return (
    <section>
      <header>
        <h2>Recent projects</h2>
        <Link to="/projects">all</Link>
      </header>
      <ul className="home-projects">
        {projects.map((project) => (
          <li key={project.id}>
            <Link to={`/projects/${project.id}`} className="clip">
              {project.name}
            </Link>
            {project.workspace !== project.name && <span className="muted clip">{project.workspace}</span>}
            <span className="muted num">
              {plural(project.experiments, "experiment")}, <Time at={project.last_start} />
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export default function Home() {
  useCrumbs({ label: "Home" });
  const since = useSince();
  const home = useGet(["home", "page", since], "/api/v1/home", { query: since ? { since } : {} });
  const isEmpty = useAbout().data?.is_empty ?? false;
  if (!home.data) return <div className="page">{home.error ? <ErrorNote error={home.error} retry={home.refetch} /> : <Skeleton lines={8} />}</div>;
  const { running, ended, failed, projects } = home.data;
  if (isEmpty && running.length + ended.length + failed.length === 0) {
    return (
      <div className="page">
        <FirstRun />
      </div>
    );
  }
  return (
    <div className="page">
      <h1 className="visually-hidden">Home</h1>
      <Running home={home.data} />
      <Failed failed={failed} />
      <Ended ended={ended} since={since} />
      <Projects projects={projects} />
    </div>
  );
}
