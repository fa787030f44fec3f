// The first look at a trial: its curve, its life, its best checkpoint, what is known of it, and what it reported.
import { useGet } from "../../../api";
import { Timeline } from "../../../charts";
import { ErrorNote } from "../../../parts";
import type { Trial } from "../useTrial";
import { BestCheckpoint } from "./BestCheckpoint";
import { Facts } from "./Facts";
import { LastValues } from "./LastValues";
import { MetricCurve } from "./MetricCurve";
import { Workloads } from "./Workloads";


export function OverviewTab({ trial }: { trial: Trial }) {
  return (
    <div className="overview">
      <div className="overview-main">
        <MetricCurve trial={trial} />
        <Life trialId={trial.id} />
        <Workloads trial={trial} />
      </div>
      <div className="overview-side">
        <BestCheckpoint trial={trial} />
        <LastValues trial={trial} />
        <Facts trial={trial} />
      </div>
    </div>
  );
}

function Life({ trialId }: { trialId: number }) {
  const { data, error } = useGet(["trial", trialId, "timeline"], "/api/v1/trials/{trial_id}/timeline", { path: { trial_id: trialId } });
  return (
    <section className="life">
      {error && !data && <ErrorNote error={error} />}
      {data && <Timeline moments={data.moments} />}
    </section>
  );
}
