// The metric of the top trials, live; zoomed, with the detail of that range.
import { useMemo } from "react";
import type { ChartSettings, Line } from "../../../charts";
import { LineChart, toLine, useColors, useCurves } from "../../../charts";
import { isCoarse, stepsOf } from "../../../charts/logic/envelopes";
import { loading } from "../../../charts/shell/ChartShell";
import { moment, plural } from "../../../format";
import { address, navigate } from "../../../route";
import type { Experiment } from "../useExperiment";
import type { Curve } from "./curves";
import { asEnvelope, curveLine } from "./curves";

interface LearningCurvesProps {
  experiment: Experiment;
  metric: string;
  smallerIsBetter: boolean;
  curves: readonly Curve[];
  total: number;
  /** How many were asked for. */
  top: number;
  isByLength: boolean;
  said: string;
  settings: ChartSettings;
  selected: readonly number[];
  kept: ReadonlySet<number> | undefined;
  lit: number | undefined;
  onLight: (trialId: number | undefined) => void;
  isLoading: boolean;
}

/** Lines of the whole, or of a zoomed range where that has more points. */
function useLines({ experiment, metric, smallerIsBetter, curves, settings, selected, kept }: LearningCurvesProps): Line[] {
  const { theme } = useColors();
  const { place, zoom } = settings;
  const asked = useMemo(() => curves.filter((curve) => !kept || kept.has(curve.trial_id)), [curves, kept]);
  const lines = useMemo(() => {
    const shown = { place, began: moment(experiment.start_time), selected, bestTrialId: experiment.best_checkpoint_uuid ? experiment.best_trial_id : null, smallerIsBetter };
    return asked.map((curve, at) => curveLine(curve, at, shown));
  }, [asked, place, selected, theme, experiment.best_trial_id]);
  // Time here is since the experiment began, which the server's curves do not know: there a zoom shows what is there.
  const coarse = useMemo(() => (zoom && place !== "time" ? asked.map(asEnvelope) : []), [zoom === undefined, place, asked.length]);
  const isWanted = zoom !== undefined && isCoarse(coarse) && stepsOf(coarse, place, zoom) !== undefined;
  const dot = metric.indexOf(".");
  const series = `${metric.slice(0, dot)}:${metric.slice(dot + 1)}`;
  const fine = useCurves({ of: ["experiment", experiment.id], trials: asked.map((curve) => curve.trial_id).slice(0, 100), series: [series], place, zoom, buckets: 200, isWanted });
  return useMemo(() => {
    if (!isWanted || !fine.curves || fine.isLoading) return lines;
    const byTrial = new Map(fine.curves.map((curve) => [curve.trial_id, curve]));
    return lines.map((line) => {
      const curve = byTrial.get(line.trialId);
      return curve ? { ...toLine(curve, line, place), id: line.id, bestX: line.bestX } : line;
    });
  }, [lines, fine.curves, isWanted]);
}

/** "the 20 best of 120 trials"; while some have not reported, "3 of 4 trials". */
export function whichTrials(shown: number, total: number, top: number, isByLength: boolean): string {
  if (shown >= total) return plural(total, "trial");
  if (shown < top) return `${shown} of ${plural(total, "trial")}`;
  return isByLength ? `of ${plural(total, "trial")} the ${top} that trained longest, the best of those first` : `the ${top} best of ${plural(total, "trial")}`;
}

export function LearningCurves(props: LearningCurvesProps) {
  const { experiment, metric, curves, total, isByLength, settings, said } = props;
  const lines = useLines(props);
  const which = props.kept ? `${lines.length} of ${plural(curves.length, "trial")} pass the brushes` : whichTrials(curves.length, total, props.top, isByLength);
  return (
    <LineChart
      id="curves"
      title={metric || "Learning curves"}
      lines={lines}
      place={settings.place}
      smoothing={settings.smoothing}
      isLog={settings.isLog}
      zoom={settings.zoom}
      onZoom={settings.setZoom}
      lit={props.lit}
      onLight={props.onLight}
      height={400}
      mostNamed={0}
      note={which}
      pick={{ label: "Open this trial", onPick: ({ trialId }) => navigate(address(`/trials/${trialId}`)) }}
      empty={props.isLoading ? loading : props.kept && curves.length ? "No trial passes the brushes. Clear one to see curves." : said || `No trial of experiment ${experiment.id} has reported ${metric || "a metric"} yet.`}
    />
  );
}
