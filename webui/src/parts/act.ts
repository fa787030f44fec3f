// Do something on the server, say what came of it, and make what is on screen fresh.
import { explain } from "../api/error";
import { queries } from "../api/query";
import { toast, toastError } from "./toast";

interface Outcomes {
  outcomes: { id: number; is_done: boolean; said: string }[];
}

/** The news of an answer: its own sentence, or how many of several things were done and why others were not. */
export function news(answer: unknown): { good: string; bad: string } {
  if (answer && typeof answer === "object" && "said" in answer) return { good: String(answer.said), bad: "" };
  if (!answer || typeof answer !== "object" || !("outcomes" in answer)) return { good: "Done.", bad: "" };
  const { outcomes } = answer as Outcomes;
  const done = outcomes.filter((one) => one.is_done);
  const refused = outcomes.filter((one) => !one.is_done).map((one) => one.said);
  const good = done.length > 1 ? `Done for ${done.length} of ${outcomes.length}.` : (done[0]?.said ?? "");
  const rest = refused.length > 3 ? ` And ${refused.length - 3} more.` : "";
  return { good, bad: refused.slice(0, 3).join(" ") + rest };
}

/** Returns whether it was done; errors are said, not thrown. */
export async function act(change: () => Promise<unknown>): Promise<boolean> {
  try {
    const { good, bad } = news(await change());
    if (good) toast(good);
    if (bad) toastError(bad);
    void queries.invalidateQueries();
    return !bad;
  } catch (error) {
    toastError(explain(error));
    return false;
  }
}
