// Start a TensorBoard on trials or experiments, or open the one that already shows them.
import { useState } from "react";
import type { components } from "../api";
import { api, useGet } from "../api";
import { Dialog, ErrorNote, Skeleton } from "../parts";
import "./dialogs.css";

type Board = components["schemas"]["TensorBoardAnswer"];

interface TensorBoardDialogProps {
  trials?: number[];
  experiments?: number[];
  onClose: () => void;
}

const same = (a: number[], b: number[]) => a.length === b.length && a.every((id) => b.includes(id));

export function TensorBoardDialog({ trials = [], experiments = [], onClose }: TensorBoardDialogProps) {
  const { data, error, refetch } = useGet(["tasks", "tensorboards"], "/api/v1/tensorboards", {}, { staleTime: 0 });
  const [started, setStarted] = useState<Board>();
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<unknown>();
  const board = started ?? data?.tensorboards.find((one) => one.is_alive && same(one.trials, trials) && same(one.experiments, experiments));
  const start = async () => {
    setBusy(true);
    setProblem(undefined);
    try {
      setStarted(await api.post("/api/v1/tensorboards", { body: { trials, experiments } }));
      void refetch();
    } catch (refused) {
      setProblem(refused);
    } finally {
      setBusy(false);
    }
  };
  return (
    <Dialog title="Open in TensorBoard" onClose={onClose} footer={!board && data && !data.said && <StartButton busy={busy} onStart={() => void start()} />}>
      <ErrorNote error={error ?? problem} />
      {!data && !error && <Skeleton lines={2} />}
      {board && (
        <p>
          TensorBoard runs at{" "}
          <a href={board.address} target="_blank" rel="noopener noreferrer">
            {board.address}
          </a>
          . It runs until it is ended under TensorBoards.
        </p>
      )}
      {data && !board && <p>{data.said || "A TensorBoard is started on this machine. It runs until it is ended under TensorBoards."}</p>}
    </Dialog>
  );
}

function StartButton({ busy, onStart }: { busy: boolean; onStart: () => void }) {
  return (
    <button type="button" className="primary dialog-last" disabled={busy} onClick={onStart}>
      {busy ? "Starting…" : "Start"}
    </button>
  );
}
