// TensorBoards that run on their own: open, end, start.
import { useState } from "react";
import type { Answer } from "../../api";
import { api, queries, useGet, useReadOnly } from "../../api";
import { listed } from "../../format";
import { useCrumbs } from "../../frame";
import { Dialog, Empty, ErrorNote, Icon, Skeleton, Time, Tip, act, confirm, toast } from "../../parts";
import { Link } from "../../route";

type Board = Answer<"/api/v1/tensorboards">["tensorboards"][number];

/** Ids as somebody types them: "3, 5 8". Undefined when something else is among them. */
export function ids(text: string): number[] | undefined {
  const words = text.split(/[\s,]+/).filter(Boolean);
  return words.every((word) => /^\d+$/.test(word)) ? words.map(Number) : undefined;
}

function Shows({ board }: { board: Board }) {
  const links = [
    ...board.experiments.map((id) => ({ to: `/experiments/${id}`, word: `experiment ${id}` })),
    ...board.trials.map((id) => ({ to: `/trials/${id}`, word: `trial ${id}` })),
  ];
  if (links.length === 0) return <span className="muted">everything</span>;
  return links.map(({ to, word }, place) => (
    <span key={to}>
      {place > 0 && ", "}
      <Link to={to}>{word}</Link>
    </span>
  ));
}

async function end(board: Board): Promise<void> {
  const what = listed([...board.experiments.map((id) => `experiment ${id}`), ...board.trials.map((id) => `trial ${id}`)]);
  const lost = `The TensorBoard on ${what || "everything"} ends; the data that it shows stays. It can be started again at any time.`;
  if (!(await confirm({ title: `End TensorBoard ${board.id}?`, lost, action: "End it" }))) return;
  await act(() => api.delete("/api/v1/tensorboards/{number}", { path: { number: board.id } }));
}

function Boards({ boards, locked }: { boards: Board[]; locked: string }) {
  return (
    <div className="scroll">
      <table>
        <thead>
          <tr>
            <th>TensorBoard</th>
            <th>Shows</th>
            <th className="phoneless">Started</th>
            <th className="num roomy">Process</th>
            <th>
              <span className="visually-hidden">End</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {boards.map((board) => (
            <tr key={board.id}>
              <td>
                {board.is_alive ? (
                  <a href={board.address} target="_blank" rel="noopener noreferrer">
                    {board.address.replace(/^http:\/\/|\/$/g, "")} <Icon name="external" size={12} />
                  </a>
                ) : (
                  <span className="muted">has ended</span>
                )}
              </td>
              <td>
                <Shows board={board} />
              </td>
              <td className="phoneless muted">
                <Time at={board.started} />
              </td>
              <td className="num roomy muted">{board.pid}</td>
              <td className="num">
                <Tip text={locked}>
                  <button type="button" disabled={Boolean(locked)} onClick={() => void end(board)} aria-label={`${board.is_alive ? "End" : "Remove"} TensorBoard ${board.id}`}>
                    {board.is_alive ? "End" : "Remove"}
                  </button>
                </Tip>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Start({ onClose }: { onClose: () => void }) {
  const [experiments, setExperiments] = useState("");
  const [trials, setTrials] = useState("");
  const wanted = { experiments: ids(experiments), trials: ids(trials) };
  const isEmpty = !wanted.experiments?.length && !wanted.trials?.length;
  const start = async () => {
    const body = { experiments: wanted.experiments ?? [], trials: wanted.trials ?? [] };
    const board = await api.post("/api/v1/tensorboards", { body });
    toast(`TensorBoard runs at ${board.address}`);
    await queries.invalidateQueries({ queryKey: ["tasks"] });
  };
  return (
    <Dialog
      title="Start a TensorBoard"
      action="Start"
      onAction={start}
      onClose={onClose}
      disabled={!wanted.experiments || !wanted.trials || isEmpty}
    >
      <label className="field">
        Experiments, by id: 7, 12
        <input value={experiments} aria-invalid={!wanted.experiments} onChange={(event) => setExperiments(event.target.value)} />
      </label>
      <label className="field">
        Trials, by id
        <input value={trials} aria-invalid={!wanted.trials} onChange={(event) => setTrials(event.target.value)} />
      </label>
    </Dialog>
  );
}

export default function Tasks() {
  useCrumbs({ label: "TensorBoards" });
  const boards = useGet(["tasks"], "/api/v1/tensorboards", {}, { refetchInterval: 5000 });
  const [starting, setStarting] = useState(false);
  const readOnly = useReadOnly();
  if (!boards.data) return <div className="page">{boards.error ? <ErrorNote error={boards.error} retry={boards.refetch} /> : <Skeleton />}</div>;
  const locked = readOnly || boards.data.said;
  return (
    <div className="page">
      <section>
        <header>
          <h1>TensorBoards</h1>
          <span className="grow" />
          <Tip text={locked}>
            <button type="button" disabled={Boolean(locked)} onClick={() => setStarting(true)}>
              <Icon name="plus" /> Start one
            </button>
          </Tip>
        </header>
        {boards.data.said && <p className="muted">{boards.data.said}</p>}
        {boards.data.tensorboards.length > 0 ? (
          <Boards boards={boards.data.tensorboards} locked={readOnly} />
        ) : (
          <Empty command="det tensorboard start -d 1">No TensorBoard runs. Start one here, from an experiment's page, or in a terminal:</Empty>
        )}
      </section>
      {starting && <Start onClose={() => setStarting(false)} />}
    </div>
  );
}
