// The head of the table: order by click, width and place by drag, all of it by keyboard too. One head is in the tab order;
// left and right arrows lead to the others.
import type { KeyboardEvent, MouseEvent, PointerEvent } from "react";
import { memo, useRef, useState } from "react";
import { Icon } from "../../parts";
import type { Column } from "../types";
import type { Placed } from "../view/columns";
import { clampWidth } from "../view/columns";
import { sorted } from "../view/sort";
import { isRight } from "./cell";
import { follow, resized, target } from "./drag";
import { HeadMenu } from "./headmenu";
import type { Verbs } from "./headmenu";
import { checkWidth } from "./row";

export interface HeadActs extends Verbs {
  onSort: (column: Column, isAdded: boolean) => void;
  /** While it is dragged, and once it is let go; undefined is the usual width. */
  onWidth: (key: string, width: number | undefined, isDone: boolean) => void;
}

interface HeadProps extends HeadActs {
  columns: readonly Placed[];
  all: readonly Placed[];
  width: number;
  height: number;
  sort: readonly string[];
  chosen: "none" | "some" | "all";
  onAll: () => void;
  /** Bring a column into sight before it is focused. */
  onReveal: (place: number) => void;
}

export const Head = memo(function Head(props: HeadProps) {
  const { columns, all, width, height, chosen, onAll } = props;
  const row = useRef<HTMLDivElement>(null);
  const [stop, setStop] = useState(0);
  const [marker, setMarker] = useState<number>();
  const focus = (place: number, isMoving = false) => {
    const to = Math.max(0, Math.min(all.length - 1, place));
    setStop(to);
    props.onReveal(to);
    const cell = () => row.current?.querySelector<HTMLElement>(`[data-place="${to}"]`);
    // One that was out of sight, or that is being moved, is drawn there with the next frame.
    if (cell() && !isMoving) cell()?.focus();
    else requestAnimationFrame(() => cell()?.focus());
  };
  return (
    <div className="head" role="rowgroup" style={{ width, height }}>
      <div role="row" aria-rowindex={1} ref={row}>
        <div role="columnheader" aria-colindex={1} className="cell check">
          <input
            type="checkbox"
            aria-label={chosen === "none" ? "Select all that fit, up to 500" : "Select none"}
            checked={chosen === "all"}
            ref={(box) => void (box && (box.indeterminate = chosen === "some"))}
            onChange={onAll}
          />
        </div>
        {columns.map((at) => (
          <HeadCell key={at.column.key} {...props} at={at} isStop={at.place === Math.min(stop, all.length - 1)} onFocus={focus} onMark={setMarker} />
        ))}
        {marker !== undefined && <div className="marker" style={{ left: all[marker]?.left ?? width }} />}
      </div>
    </div>
  );
});

interface HeadCellProps extends HeadProps {
  at: Placed;
  isStop: boolean;
  onFocus: (place: number, isMoving?: boolean) => void;
  onMark: (place: number | undefined) => void;
}

function HeadCell(props: HeadCellProps) {
  const { at, all, sort, isStop, onSort, onMove, onWidth, onFocus, onMark } = props;
  const { column, width, left, place } = at;
  const cell = useRef<HTMLDivElement>(null);
  const isDragged = useRef(false);
  const order = sorted(sort, column.key);
  const isSortable = column.key !== "spark";

  const drag = (event: PointerEvent) => {
    // Measured from the head's own left edge, so that scrolling sideways does not matter.
    const origin = cell.current!.closest(".head")!.getBoundingClientRect().left;
    let to: number | undefined;
    isDragged.current = false;
    follow(event, {
      move: (_, { clientX }) => {
        isDragged.current = true;
        onMark((to = target(all, clientX - origin)));
      },
      end: (_, isMoved) => {
        onMark(undefined);
        if (isMoved && to !== undefined) onMove(column.key, to > place ? to - 1 : to);
      },
    });
  };
  const click = (event: MouseEvent) => {
    if (!isDragged.current && isSortable) onSort(column, event.shiftKey);
    isDragged.current = false;
  };
  const resize = (event: PointerEvent) => {
    event.stopPropagation();
    follow(event, {
      move: (dx) => onWidth(column.key, resized(width, dx), false),
      end: (dx, isMoved) => onWidth(column.key, isMoved ? resized(width, dx) : width, true),
    });
  };
  const keys = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === "Home") onFocus(0);
    else if (event.key === "End") onFocus(all.length - 1);
    else if (!step) return;
    else if (event.altKey) {
      onMove(column.key, place + step);
      onFocus(place + step, true);
    } else if (event.shiftKey) onWidth(column.key, clampWidth(width + step * 16), true);
    else onFocus(place + step);
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div
      ref={cell}
      role="columnheader"
      aria-colindex={place + 2}
      // Only one head may say so; the others of the order say it in words.
      aria-sort={order?.place === 1 ? order.direction : undefined}
      className={["cell", place === 0 ? "first" : "", isRight(column) ? "right" : ""].filter(Boolean).join(" ")}
      style={{ width, ...(place === 0 ? {} : { left }) }}
      onKeyDown={keys}
    >
      <button
        type="button"
        className="title"
        data-place={place}
        tabIndex={isStop ? 0 : -1}
        title={`${column.title}${column.section === "run" ? "" : ` (${column.key})`}`}
        onPointerDown={drag}
        onClick={click}
      >
        <span className="clip">{column.title}</span>
        {order && <OrderMark direction={order.direction} place={sort.length > 1 ? order.place : undefined} />}
      </button>
      <HeadMenu {...props} column={column} place={place} count={all.length} isStop={isStop} />
      {/* By keyboard: shift and the arrows on the title. */}
      <span className="edge" aria-hidden onPointerDown={resize} onDoubleClick={() => onWidth(column.key, undefined, true)} />
    </div>
  );
}

function OrderMark({ direction, place }: { direction: "ascending" | "descending"; place: number | undefined }) {
  return (
    <span className="order num">
      <Icon name={direction === "ascending" ? "up" : "down"} size={12} />
      {place}
      <span className="visually-hidden">{direction}</span>
    </span>
  );
}

export { checkWidth };
