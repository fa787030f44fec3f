// The lines themselves: only those in view are drawn. It follows the end unless one scrolls up, and grows at both ends.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import { count, plural } from "../../../format";
import { Icon } from "../../../parts";
import { LogRow } from "./LogRow";
import type { Log, LogLine } from "./useLog";
import type { Window } from "./window";
import { placeOf } from "./window";

const height = 20;
const near = 30; // lines from an end at which more are asked for

interface LogViewProps {
  log: Log & { window: Window<LogLine> };
  find: RegExp | undefined;
  current: number | undefined;
  hasTimes: boolean;
  hasRanks: boolean;
  wrap: boolean;
  onPick: (id: number) => void;
}

export function LogView({ log, find, current, hasTimes, hasRanks, wrap, onPick }: LogViewProps) {
  const { lines, oldest, isAtEnd } = log.window;
  const box = useRef<HTMLDivElement>(null);
  const [seen, setSeen] = useState(0);
  const [isSettled, setSettled] = useState(false);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    getItemKey: (place) => lines[place]?.id ?? place,
    overscan: 12,
    anchorTo: "end",
    followOnAppend: isAtEnd,
    scrollEndThreshold: height,
  });
  const items = rows.getVirtualItems();
  const first = items[0]?.index ?? 0;
  const last = items.at(-1)?.index ?? 0;
  const isDown = rows.isAtEnd(height) && isAtEnd;
  const newest = lines.at(-1)?.id ?? 0;

  useLayoutEffect(() => rows.measure(), [wrap, hasTimes]);
  useLayoutEffect(() => {
    if (log.target === undefined) rows.scrollToEnd();
    else rows.scrollToIndex(Math.min(placeOf(lines, log.target), lines.length - 1), { align: "center" });
    setSeen(newest);
    // While the view is on its way to a line, lines added before it would lead it to another one.
    setSettled(false);
    const timer = setTimeout(() => setSettled(true), 300);
    return () => clearTimeout(timer);
    // Once per jump, not with each line that comes.
  }, [log.jump, log.target]);
  useEffect(() => {
    if (isDown) setSeen(newest);
  }, [isDown, newest]);
  useEffect(() => {
    if (isSettled && first < near && oldest !== null) log.older();
  }, [isSettled, first, oldest, lines.length]);
  useEffect(() => {
    if (isSettled && last > lines.length - near && !isAtEnd) log.newer();
  }, [isSettled, last, lines.length, isAtEnd]);

  const unseen = isDown ? 0 : lines.length - placeOf(lines, seen + 1);
  const toEnd = () => (isAtEnd ? rows.scrollToEnd() : log.goTo("end"));
  return (
    <div className="log">
      <div className={wrap ? "log-box wrap" : "log-box"} ref={box} role="log" aria-label="Log" aria-live="off" tabIndex={0}>
        <div className="log-space" style={{ height: rows.getTotalSize() }}>
          {oldest === null && first === 0 && <span className="visually-hidden">Beginning of the log</span>}
          <div className="log-rows" style={{ top: items[0]?.start ?? 0 }}>
            {items.map((item) => {
              const line = lines[item.index];
              if (!line) return null;
              const before = lines[item.index - 1];
              return (
                <div key={item.key} data-index={item.index} ref={rows.measureElement}>
                  <LogRow
                    line={line}
                    find={find}
                    isCurrent={line.id === current}
                    hasTimes={hasTimes}
                    hasRanks={hasRanks}
                    isNewAttempt={before !== undefined && before.attempt !== line.attempt && line.attempt !== null}
                    onPick={onPick}
                  />
                </div>
              );
            })}
          </div>
        </div>
      </div>
      {!isDown && lines.length > 0 && (
        <button type="button" className="log-new" onClick={toEnd} aria-label="To the end of the log">
          <Icon name="down" /> {unseen > 0 && isAtEnd ? plural(unseen, "new line") : "To the end"}
        </button>
      )}
      <span className="visually-hidden" role="status">
        {count(lines.length)} lines loaded
      </span>
    </div>
  );
}
