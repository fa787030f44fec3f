// Which columns are shown. The list is drawn as far as it is in sight: a store can have thousands of columns.
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";
import { count } from "../../format";
import type { Column } from "../types";
import { found, sections } from "../view/columns";

interface PickerProps {
  columns: readonly Column[];
  shown: readonly string[];
  onChange: (keys: string[] | null) => void;
}

type Entry = { title: string; columns: Column[] } | Column;

function entries(columns: readonly Column[], text: string): Entry[] {
  const fitting = found(columns, text);
  return sections.flatMap(({ section, title }) => {
    const own = fitting.filter((column) => column.section === section);
    return own.length ? [{ title, columns: own }, ...own] : [];
  });
}

export function Picker({ columns, shown, onChange }: PickerProps) {
  const [text, setText] = useState("");
  const list = useRef<HTMLDivElement>(null);
  const all = useMemo(() => entries(columns, text), [columns, text]);
  const virtual = useVirtualizer({ count: all.length, getScrollElement: () => list.current, estimateSize: () => 28, overscan: 10 });
  const chosen = new Set(shown);
  const set = (keys: readonly string[], isShown: boolean) => {
    const rest = shown.filter((key) => isShown || !keys.includes(key));
    // One column has to stay: it leads to the run.
    const next = isShown ? [...rest, ...keys.filter((key) => !chosen.has(key))] : rest;
    if (next.length) onChange(next);
  };
  return (
    <div className="picker">
      <input type="search" value={text} placeholder={`Search ${count(columns.length)} columns`} aria-label="Search columns" onChange={(event) => setText(event.target.value)} />
      <div className="picker-list" ref={list} role="group" aria-label="Columns">
        <div style={{ height: virtual.getTotalSize(), position: "relative" }}>
          {virtual.getVirtualItems().map(({ index, start }) => {
            const entry = all[index]!;
            const style = { transform: `translateY(${start}px)` };
            return "columns" in entry ? (
              <Heading key={`section ${entry.title}`} {...entry} style={style} chosen={chosen} onSet={set} />
            ) : (
              <label key={entry.key} className="pick" style={style} title={entry.key}>
                <input type="checkbox" checked={chosen.has(entry.key)} onChange={(event) => set([entry.key], event.target.checked)} />
                <span className="clip">{entry.title}</span>
              </label>
            );
          })}
        </div>
        {all.length === 0 && <p className="muted">No column fits &quot;{text}&quot;.</p>}
      </div>
      <div className="row">
        <span className="muted grow">{count(shown.length)} shown</span>
        <button type="button" className="plain" onClick={() => onChange(null)}>
          Usual columns
        </button>
      </div>
    </div>
  );
}

interface HeadingProps {
  title: string;
  columns: Column[];
  style: { transform: string };
  chosen: ReadonlySet<string>;
  onSet: (keys: string[], isShown: boolean) => void;
}

function Heading({ title, columns, style, chosen, onSet }: HeadingProps) {
  const keys = columns.map(({ key }) => key);
  const isAll = keys.every((key) => chosen.has(key));
  return (
    <div className="pick heading" style={style}>
      <span className="grow">{title}</span>
      <button type="button" className="plain" onClick={() => onSet(keys, !isAll)}>
        {isAll ? "None" : "All"}
        <span className="visually-hidden"> of {title}</span>
      </button>
    </div>
  );
}
