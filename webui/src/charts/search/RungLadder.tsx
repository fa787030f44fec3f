// The rungs of an ASHA search: a dot per trial, filled if it went on, hollow where it was stopped; and what that saved.
import { useMemo } from "react";
import { short } from "../../format";
import { toCsv } from "../logic/csv";
import type { Dot, Ladder, Rungs } from "../logic/rungs";
import { ladder } from "../logic/rungs";
import { ChartShell } from "../shell/ChartShell";
import type { Colors } from "../shell/palette";
import { useColors } from "../shell/palette";
import { useSize } from "../shell/useSize";
import "./rungs.css";

export interface RungLadderProps {
  rungs: Rungs;
  smallerIsBetter: boolean;
  bestTrialId?: number | null | undefined;
  lit?: number | undefined;
  onLight?: (trialId: number | undefined) => void;
  onOpen?: (trialId: number) => void;
  height?: number;
}

const words = { passed: "went on", stopped: "stopped here", waiting: "waits here", there: "reached the top" };

const dotTitle = (dot: Dot): string => `trial ${dot.trialId}${dot.value === undefined ? "" : `: ${short(dot.value)}`}, ${words[dot.kind]}`;

/** The same picture on a canvas, to be saved. */
function painted(shape: Ladder, width: number, colors: Colors, best: number | null | undefined): HTMLCanvasElement {
  const ratio = window.devicePixelRatio || 1;
  const canvas = document.createElement("canvas");
  canvas.width = width * ratio;
  canvas.height = (shape.height + 8) * ratio;
  const ctx = canvas.getContext("2d") as CanvasRenderingContext2D;
  ctx.scale(ratio, ratio);
  ctx.font = "12px system-ui, sans-serif";
  ctx.textBaseline = "middle";
  for (const row of shape.rows) {
    ctx.fillStyle = colors.muted;
    if (row.bracket) ctx.fillText(row.bracket, 0, row.top - 8);
    ctx.fillStyle = colors.text;
    ctx.fillText(row.label, 0, row.top + 12);
    ctx.fillStyle = colors.muted;
    ctx.fillText(row.said, shape.left, row.top + 12);
    for (const dot of row.dots) {
      ctx.beginPath();
      ctx.arc(dot.x, dot.y, shape.radius - 0.75, 0, 2 * Math.PI);
      ctx.strokeStyle = ctx.fillStyle = dot.trialId === best ? colors.best : dot.kind === "stopped" ? colors.faint : colors.accent;
      ctx.lineWidth = 1.5;
      if (dot.kind === "passed" || dot.kind === "there") ctx.fill();
      ctx.stroke();
    }
  }
  return canvas;
}

export function RungLadder({ rungs, smallerIsBetter, bestTrialId, lit, onLight, onOpen, height = 380 }: RungLadderProps) {
  const colors = useColors();
  const [host, { width }] = useSize<HTMLDivElement>();
  const shape = useMemo(() => ladder(rungs.rungs, width, smallerIsBetter), [rungs, width, smallerIsBetter]);
  const csv = () => toCsv(["bracket", "rung", "length", "trial", "value", "stopped here"], rungs.rungs.flatMap((rung) => rung.trials.map((trial) => [rung.bracket, rung.rung, rung.units, trial.trial_id, trial.value, trial.is_stopped_here])));
  const label = `Rungs of the search. ${rungs.said} ${shape.rows.map((row) => `${row.label}: ${row.said}`).join("; ")}`;
  return (
    <ChartShell
      id="rungs"
      title="Rungs"
      height={height}
      empty={rungs.rungs.length ? undefined : "No trial has reached a rung yet."}
      note={rungs.said}
      canvas={() => painted(shape, width, colors, bestTrialId)}
      csv={csv}
    >
      <div className="rungs" ref={host}>
        <svg width={width} height={shape.height} role="group" aria-label={label}>
          {shape.rows.map((row) => (
            <g key={row.key}>
              {row.bracket && (
                <text x={0} y={row.top - 6} className="rung-bracket">
                  {row.bracket}
                </text>
              )}
              <line x1={0} x2={width} y1={row.top} y2={row.top} />
              <text x={0} y={row.top + 16} className="rung-label">
                {row.label}
              </text>
              <text x={shape.left} y={row.top + 16}>
                {row.said}
              </text>
              {row.dots.map((dot) => (
                <circle
                  key={dot.trialId}
                  cx={dot.x}
                  cy={dot.y}
                  r={shape.radius - 0.75 + (dot.trialId === lit ? 1.5 : 0)}
                  className={`rung-dot ${dot.kind}${dot.trialId === bestTrialId ? " best" : ""}${dot.trialId === lit ? " lit" : ""}`}
                  onPointerEnter={() => onLight?.(dot.trialId)}
                  onPointerLeave={() => onLight?.(undefined)}
                  onClick={() => onOpen?.(dot.trialId)}
                >
                  <title>{dotTitle(dot)}</title>
                </circle>
              ))}
            </g>
          ))}
        </svg>
      </div>
    </ChartShell>
  );
}
