// The life of a trial as a thin strip: attempts, checkpoints, validations, pauses, its end.
import { Tip } from "../../parts";
import { duration, moment, plural, utc } from "../../format";
import { useSize } from "../shell/useSize";
import type { Mark, Moment } from "./moments";
import { marks, pieces, span } from "./moments";
import "./small.css";

const words: Record<Moment["kind"], string> = {
  attempt: "started",
  checkpoint: "checkpoint",
  validation: "validation",
  state: "changed",
  end: "ended",
};

function text(mark: Mark): string {
  const shown = mark.said.slice(0, 6);
  const rest = mark.said.length - shown.length;
  return [utc(moment(mark.time)), ...shown, ...(rest ? [`and ${rest} more`] : [])].join("\n");
}

function summary(moments: readonly Moment[]): string {
  const count = (kind: Moment["kind"]) => moments.filter((one) => one.kind === kind).length;
  const parts = [plural(count("attempt"), "attempt"), plural(count("validation"), "validation"), plural(count("checkpoint"), "checkpoint")];
  return `Life of the trial: ${parts.join(", ")}${moments.length ? `; ${moments.at(-1)?.said}` : ""}`;
}

/** `now` is for what still runs: pass the server's time, or leave it to the clock. */
export function Timeline({ moments, now = Date.now() }: { moments: readonly Moment[]; now?: number }) {
  const [ref, { width }] = useSize<HTMLDivElement>();
  if (!moments.length) return <p className="muted">Nothing has happened to this trial yet.</p>;
  const [from, to] = span(moments, now);
  const kinds = [...new Set(moments.map((one) => one.kind))];
  return (
    <div className="timeline" role="group" aria-label={summary(moments)}>
      <div className="timeline-strip" ref={ref}>
        {pieces(moments, now).map((piece) => (
          <i key={piece.attempt} className="timeline-piece" style={{ left: `${piece.from * 100}%`, width: `${(piece.to - piece.from) * 100}%` }} />
        ))}
        {marks(moments, now, width || 600).map((mark) => (
          <span key={mark.time} className={`timeline-mark ${mark.kind}`} style={{ left: `${mark.at * 100}%` }}>
            <Tip text={text(mark)}>
              <b tabIndex={0} role="img" aria-label={text(mark)} />
            </Tip>
          </span>
        ))}
      </div>
      <div className="timeline-feet muted num">
        <span title={utc(from)}>{utc(from).slice(0, 16)}</span>
        <span className="timeline-kinds">
          {kinds.map((kind) => (
            <span key={kind} className={kind}>
              <b aria-hidden="true" /> {words[kind]}
            </span>
          ))}
        </span>
        <span title={utc(to)}>{duration((to - from) / 1000)}</span>
      </div>
    </div>
  );
}
