// A state is a word with a colour; a dot that breathes says that it changes by itself.
import { percent } from "../format";

type Colour = "active" | "completed" | "paused" | "error" | "ended";

const colours: Record<string, Colour> = {
  ACTIVE: "active",
  QUEUED: "ended",
  PULLING: "active",
  STARTING: "active",
  RUNNING: "active",
  PAUSED: "paused",
  COMPLETED: "completed",
  CANCELED: "ended",
  KILLED: "ended",
  ERROR: "error",
  DELETING: "ended",
  DELETED: "ended",
  PARTIALLY_DELETED: "ended",
  DELETE_FAILED: "error",
  REGISTERED: "completed",
};

/** The token that colours a state; states that stop something take the colour they lead to. */
export function stateColour(state: string): Colour {
  const known = colours[state];
  if (known) return known;
  return state.endsWith("ERROR") ? "error" : state.endsWith("COMPLETED") ? "completed" : "ended";
}

const moving = /^(ACTIVE|STARTING|RUNNING|PULLING|DELETING|STOPPING)/;
export const isMoving = (state: string): boolean => moving.test(state);
export const isOver = (state: string): boolean => /^(COMPLETED|CANCELED|KILLED|ERROR|DELETED|DELETE_FAILED)$/.test(state);

/** "STOPPING_CANCELED" reads "STOPPING CANCELED". */
export function State({ state, title }: { state: string; title?: string | undefined }) {
  return (
    <span className={isMoving(state) ? "state live" : "state"} style={{ color: `var(--${stateColour(state)})` }} title={title}>
      {state.replaceAll("_", " ")}
    </span>
  );
}

/** How much is done, 0 to 1; unknown progress shows nothing rather than a guess. */
export function Progress({ share, state = "ACTIVE" }: { share: number | null | undefined; state?: string }) {
  if (share === null || share === undefined) return null;
  const width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return (
    <span className="progress num">
      <span role="progressbar" aria-label="Progress" aria-valuenow={Math.round(share * 100)} aria-valuemin={0} aria-valuemax={100}>
        <i style={{ width, background: `var(--${stateColour(state)})` }} />
      </span>
      <span>{percent(share)}</span>
    </span>
  );
}
