// A comparison with an address of its own: /compare?trials=1,2,3 or /compare?experiments=4,5.
import { useCrumbs } from "../../frame";
import { Compare } from "../../compare/compare";
import type { CompareTab } from "../../compare/tabs";
import { most, tabs } from "../../compare/tabs";
import { Empty, Tabs } from "../../parts";
import { address, codecs, useLocation, useQueryState } from "../../route";
import { plural } from "../../format";
import "./page.css";

export default function Page() {
  useCrumbs({ label: "Compare" });
  const { search } = useLocation();
  const [trials] = useQueryState<number[]>("trials", [], codecs.integers);
  const [experiments] = useQueryState<number[]>("experiments", [], codecs.integers);
  const [tab] = useQueryState<CompareTab>("compare", "curves", codecs.oneOf("curves", "differences", "parallel", "details"));
  const ids = trials.length ? trials : experiments;
  if (!ids.length) {
    return (
      <div className="page">
        <h1>Compare</h1>
        <Empty command="det compare 1 2">Nothing is chosen. Select two or more rows in a table of experiments or runs, or compare in a terminal:</Empty>
      </div>
    );
  }
  const to = (key: string) => {
    const params = Object.fromEntries(new URLSearchParams(search));
    return address("/compare", { ...params, compare: key === "curves" ? undefined : key });
  };
  return (
    <div className="page compare-page">
      <h1>Compare {plural(ids.length, trials.length ? "trial" : "experiment")}</h1>
      <Tabs tabs={[...tabs]} current={tab} to={to} label="Compare" />
      <Compare {...(trials.length ? { trials: ids.slice(0, most) } : { experiments: ids.slice(0, most) })} tab={tab} total={ids.length} />
    </div>
  );
}
