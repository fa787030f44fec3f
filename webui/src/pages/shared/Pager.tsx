// "1–50 of 1,203" with a step to either side. Nothing is shown where one page holds all.
import { count } from "../../format";

interface PagerProps {
  offset: number;
  size: number;
  total: number;
  onMove: (offset: number) => void;
}

export function Pager({ offset, size, total, onMove }: PagerProps) {
  if (total <= size && offset === 0) return null;
  const last = Math.min(total, offset + size);
  return (
    <div className="row pager">
      <span className="muted num">
        {count(Math.min(offset + 1, total))}–{count(last)} of {count(total)}
      </span>
      <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - size))}>
        Newer
      </button>
      <button type="button" disabled={last >= total} onClick={() => onMove(offset + size)}>
        Older
      </button>
    </div>
  );
}
