// What can be done with one column, behind the small mark in its head.
import { Icon } from "../../parts";
import { Popover } from "../popover";
import type { Column } from "../types";

export interface Verbs {
  onMove: (key: string, place: number) => void;
  onHide: (key: string) => void;
  onOrder: (entry: string) => void;
  onFilter: (column: Column) => void;
  onGroup: (key: string | null) => void;
  onHeat: (key: string) => void;
  group: string | null;
  isHot: (column: Column) => boolean;
}

interface HeadMenuProps extends Verbs {
  column: Column;
  place: number;
  count: number;
  isStop: boolean;
}

export function HeadMenu({ column, place, count, isStop, ...acts }: HeadMenuProps) {
  const { key } = column;
  const isSpark = key === "spark";
  const isNumber = column.type === "number";
  const verbs: [string, () => void, boolean][] = [
    ["Sort ascending", () => acts.onOrder(key), !isSpark],
    ["Sort descending", () => acts.onOrder(`-${key}`), !isSpark],
    ["Filter by it", () => acts.onFilter(column), column.operators.length > 0],
    [acts.group === key ? "Do not group" : "Group by it", () => acts.onGroup(acts.group === key ? null : key), !isSpark],
    [acts.isHot(column) ? "No heat colours" : "Heat colours", () => acts.onHeat(key), isNumber],
    ["Move left", () => acts.onMove(key, place - 1), place > 0],
    ["Move right", () => acts.onMove(key, place + 1), place < count - 1],
    ["Hide", () => acts.onHide(key), count > 1],
  ];
  return (
    <Popover label={<Icon name="more" size={14} />} name={`Column ${column.title}`} className="plain more" tabIndex={isStop ? 0 : -1}>
      {(close) => (
        <div className="verbs">
          {verbs
            .filter(([, , isPossible]) => isPossible)
            .map(([word, act]) => (
              <button
                key={word}
                type="button"
                onClick={() => {
                  close();
                  act();
                }}
              >
                {word}
              </button>
            ))}
        </div>
      )}
    </Popover>
  );
}
