// The rows and columns in sight of a table of any size, under a head that stays.
import { useVirtualizer } from "@tanstack/react-virtual";
import type { CSSProperties, KeyboardEvent, ReactNode, RefObject } from "react";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { Layout } from "../rows/layout";
import { drift, pagesOf } from "../rows/layout";
import type { Rows } from "../state/userows";
import { pageSize } from "../state/userows";
import type { Sparks } from "../state/usesparks";
import type { Column, Kind, TableRow } from "../types";
import { inWindow, placed } from "../view/columns";
import type { HeadActs } from "./head";
import { Head } from "./head";
import type { Shared } from "./row";
import { GroupRow, Row, checkWidth } from "./row";

/** The row that keys act on, and how often a person moved it. */
export interface Cursor {
  offset: number;
  moves: number;
}

interface GridProps extends HeadActs {
  kind: Kind;
  name: string;
  rows: Rows;
  columns: readonly Column[];
  widths: Record<string, number>;
  sort: readonly string[];
  /** Which row or group stands on which line. */
  layout: Layout;
  onFold: (group: string) => void;
  groupTitle: string;
  isDense: boolean;
  isNarrow: boolean;
  sparks: Sparks;
  selected: (id: number) => boolean;
  marks: ReadonlyMap<number, string>;
  chosen: "none" | "some" | "all";
  cursor: Cursor;
  /** Quietly: the row moved, not the person; nothing scrolls. */
  onCursor: (offset: number, isQuiet?: boolean) => void;
  onCheck: (row: TableRow, offset: number, isRange: boolean) => void;
  onAll: () => void;
  onPages: (pages: number[]) => void;
  /** Shown in the place of rows when there are none. */
  children: ReactNode;
}

// Columns are chosen anew only after this many pixels sideways, not at each of them.
const stride = 200;

export function Grid(props: GridProps) {
  const { kind, rows, columns, widths, isDense, isNarrow, cursor, onCursor, onPages, onCheck } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const height = isDense ? 28 : 32;
  const { layout } = props;
  const all = useMemo(() => placed(columns, widths, checkWidth, isNarrow), [columns, widths, isNarrow]);
  const width = (all.at(-1)?.left ?? 0) + (all.at(-1)?.width ?? 0);
  const across = useAcross(scroller);
  const shown = useMemo(() => inWindow(all, across.left, across.width), [all, across.left, across.width]);

  const virtual = useVirtualizer({
    count: layout.count,
    getScrollElement: () => scroller.current,
    estimateSize: () => height,
    overscan: 8,
    paddingStart: height,
  });
  useLayoutEffect(() => virtual.measure(), [height]);
  const lines = virtual.getVirtualItems().map(({ index }) => ({ index, line: layout.at(index) }));
  const offsets = lines.flatMap(({ line }) => (line.kind === "row" ? [line.offset] : []));
  const pages = pagesOf(offsets, pageSize);
  const wanted = pages.join(",");
  useEffect(() => {
    if (pages.length) onPages(pages);
  }, [wanted]);
  useAnchor(scroller, rows, offsets, height, cursor, onCursor);
  useCursorInSight(scroller, layout.lineOf(cursor.offset), height, cursor.moves);

  const { isHot } = props;
  const shared: Shared = useMemo(
    () => ({ kind, columns: shown, width, height, cells: rows.cells, ranges: rows.ranges, best: rows.best, isHot }),
    [kind, shown, width, height, rows.version, isHot],
  );
  const point = useCallback((offset: number) => onCursor(offset), [onCursor]);
  const reveal = useReveal(scroller, all);
  const keys = (event: KeyboardEvent) => moveCursor(event, cursor.offset, layout, Math.floor(across.height / height) - 2, onCursor);

  const line = layout.lineOf(cursor.offset);
  return (
    <div
      ref={scroller}
      className={rows.isOld ? "grid old" : "grid"}
      role="grid"
      aria-label={props.name}
      aria-rowcount={layout.count + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable
      aria-busy={rows.isOld}
      aria-activedescendant={rows.total && line !== undefined && lines.some(({ index }) => index === line) ? `line-${line}` : undefined}
      tabIndex={0}
      style={{ "--line-height": `${height - 1}px` } as CSSProperties}
      onKeyDown={keys}
    >
      <Head {...props} columns={shown} all={all} width={width} height={height} onReveal={reveal} />
      <div className="lines" role="rowgroup" style={{ width, height: layout.count * height }}>
        {lines.map(({ index, line: one }) => {
          if (one.kind === "group") return <GroupRow key={`group ${one.value}`} {...one} line={index} shared={shared} title={props.groupTitle} onFold={props.onFold} />;
          const row = rows.row(one.offset);
          return (
            <Row
              key={index}
              shared={shared}
              row={row}
              line={index}
              offset={one.offset}
              isSelected={row !== undefined && props.selected(row.id)}
              isCursor={cursor.moves > 0 && one.offset === cursor.offset}
              spark={row && props.sparks(row.id)}
              mark={row && props.marks.get(row.id)}
              onCheck={onCheck}
              onPoint={point}
            />
          );
        })}
      </div>
      {props.children}
    </div>
  );
}

/** How far the table is scrolled sideways (in steps) and how large its window is. */
function useAcross(scroller: RefObject<HTMLDivElement | null>): { left: number; width: number; height: number } {
  const [across, setAcross] = useState({ left: 0, width: 1200, height: 600 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return undefined;
    const read = () => {
      const next = { left: Math.floor(element.scrollLeft / stride) * stride, width: element.clientWidth + stride, height: element.clientHeight };
      setAcross((now) => (now.left === next.left && now.width === next.width && now.height === next.height ? now : next));
    };
    read();
    const watch = new ResizeObserver(read);
    watch.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      watch.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);
  return across;
}

/** While live, rows come and go above those in sight: scroll with them, so that nothing moves under the eye. */
function useAnchor(scroller: RefObject<HTMLDivElement | null>, rows: Rows, offsets: readonly number[], height: number, cursor: Cursor, onCursor: GridProps["onCursor"]): void {
  const before = useRef<{ seen: { id: number; offset: number }[]; rows: Rows | undefined }>({ seen: [], rows: undefined });
  useLayoutEffect(() => {
    const element = scroller.current;
    const last = before.current;
    const isLive = last.rows?.question === rows.question && last.rows?.version !== rows.version;
    if (element && isLive) {
      const now = whereabouts(rows, offsets);
      const way = drift(last.seen, now);
      if (way && element.scrollTop > 0) element.scrollTop += way * height;
      const id = last.rows?.row(cursor.offset)?.id;
      const to = id === undefined ? undefined : now.get(id);
      if (to !== undefined && to !== cursor.offset) onCursor(to, true);
    }
    before.current = { seen: offsets.flatMap((offset) => ({ id: rows.row(offset)?.id ?? -1, offset })).filter(({ id }) => id >= 0), rows };
  }, [rows.version, offsets.join(",")]);
}

/** The offsets of rows on the pages in sight, by id. */
function whereabouts(rows: Rows, offsets: readonly number[]): Map<number, number> {
  const all = new Map<number, number>();
  for (const page of pagesOf(offsets, pageSize)) {
    for (let offset = page * pageSize; offset < (page + 1) * pageSize; offset += 1) {
      const row = rows.row(offset);
      if (row) all.set(row.id, offset);
    }
  }
  return all;
}

/** After a key, the row under the cursor is in sight, below the head. */
function useCursorInSight(scroller: RefObject<HTMLDivElement | null>, line: number | undefined, height: number, moves: number): void {
  useLayoutEffect(() => {
    const element = scroller.current;
    if (moves === 0 || !element || line === undefined) return;
    const top = line * height;
    const room = element.clientHeight - 2 * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top > element.scrollTop + room) element.scrollTop = top - room;
  }, [moves]);
}

function useReveal(scroller: RefObject<HTMLDivElement | null>, all: ReturnType<typeof placed>) {
  return useCallback(
    (place: number) => {
      const element = scroller.current;
      const at = all[place];
      const first = all[0];
      if (!element || !at || !first || place === 0) return;
      const hidden = checkWidth + first.width;
      if (at.left - hidden < element.scrollLeft) element.scrollLeft = at.left - hidden;
      else if (at.left + at.width > element.scrollLeft + element.clientWidth) element.scrollLeft = at.left + at.width - element.clientWidth;
    },
    [all],
  );
}

function moveCursor(event: KeyboardEvent, cursor: number, layout: Layout, page: number, onCursor: (offset: number) => void): void {
  const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -layout.count, End: layout.count }[event.key];
  if (by === undefined || event.ctrlKey || event.metaKey || event.altKey || layout.count === 0) return;
  event.preventDefault();
  onCursor(layout.moved(cursor, by));
}
