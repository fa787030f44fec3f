// Several experiments or trials side by side: the content of the panel below a table, and of the page of its own.
import { Suspense, lazy, useState } from "react";
import { MetricGrid } from "../charts";
import { ErrorNote, Skeleton } from "../parts";
import "./compare.css";
import { Details } from "./details";
import { Differences } from "./differences";
import { Items } from "./items";
import type { CompareTab } from "./tabs";
import { most, tabs } from "./tabs";
import { useComparison } from "./usecomparison";

const Parallel = lazy(() => import("./parallel").then(({ Parallel: shown }) => ({ default: shown })));

interface CompareProps {
  /** One of the two. Of an experiment its best trial stands for it. */
  trials?: readonly number[];
  experiments?: readonly number[];
  tab: CompareTab;
  /** How many were chosen; more than fit are left out, and that is said. */
  total: number;
}

export function Compare({ trials, experiments, tab, total }: CompareProps) {
  const { items, answer, error, retry } = useComparison(trials, experiments);
  const [hidden, setHidden] = useState<ReadonlySet<number>>(new Set());
  const [lit, setLit] = useState<number>();
  const toggle = (id: number) =>
    setHidden((now) => {
      const next = new Set(now);
      if (!next.delete(id)) next.add(id);
      return next;
    });
  if (!answer) return error ? <ErrorNote error={error} retry={retry} /> : <Skeleton lines={6} />;
  const shown = items.filter(({ id }) => !hidden.has(id));
  const asked = (trials ?? experiments ?? []).length;
  const said = [
    total > most ? `The first ${most} of ${total} are compared.` : "",
    experiments && items.length < asked ? `${asked - items.length} without a trial are left out.` : "",
  ].filter(Boolean);
  return (
    <div className="compare">
      <h2 className="visually-hidden">{tabs.find(({ key }) => key === tab)?.label}</h2>
      {said.length > 0 && <p className="muted">{said.join(" ")}</p>}
      {(tab === "curves" || tab === "parallel") && <Items items={items} hidden={hidden} onToggle={toggle} lit={lit} onLight={setLit} />}
      {tab === "curves" && (
        <MetricGrid
          of={["compare"]}
          trials={shown.map(({ id, name, color, dash }) => ({ id, name, look: { color, dash } }))}
          searcherMetric={items[0]?.trial.searcher_metric}
          lit={lit}
          onLight={setLit}
        />
      )}
      {tab === "differences" && <Differences answer={answer} items={items} />}
      {tab === "details" && <Details answer={answer} items={items} />}
      {tab === "parallel" && (
        <Suspense fallback={<Skeleton lines={6} />}>
          <Parallel answer={answer} items={shown} lit={lit} onLight={setLit} />
        </Suspense>
      )}
    </div>
  );
}
