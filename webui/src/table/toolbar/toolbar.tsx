// Above the table: search, filter, columns, groups, views, and the rest behind one button. On a phone all but the search
// fold away behind it.
import type { ReactNode } from "react";
import { useState } from "react";
import { Icon } from "../../parts";
import { Popover } from "../popover";
import type { Viewing } from "../state/useview";
import type { Column } from "../types";
import { sections } from "../view/columns";
import { conditions } from "../view/filter";
import type { Named } from "../view/sentence";
import { Chips } from "./chips";
import { Filters } from "./filters";
import { Picker } from "./picker";
import { Search } from "./search";
import { Views } from "./views";

interface ToolbarProps {
  viewing: Viewing;
  columns: readonly Column[];
  named: Named;
  shown: readonly Column[];
  what: string;
  isNarrow: boolean;
  /** "1,204 runs", or what is going on. */
  status: ReactNode;
  onExport: () => void;
  /** The builder was asked for from this column's head. */
  filterBy: Column | undefined;
  onFiltered: () => void;
}

export function Toolbar({ viewing, columns, named, shown, what, isNarrow, status, onExport, filterBy, onFiltered }: ToolbarProps) {
  const { view, where, change, reset } = viewing;
  const [isOpen, setOpen] = useState(false);
  const filters = conditions(view.filter).length;
  const tools = (
    <>
      <Popover label={<Labelled icon="filter" word={filters ? `Filter (${filters})` : "Filter"} />} name="Filter" isOpen={filterBy !== undefined} onClose={onFiltered}>
        {() => (
          <Filters
            key={filterBy?.key}
            filter={view.filter}
            columns={columns.filter(({ operators }) => operators.length)}
            also={filterBy}
            onChange={(filter) => change({ filter })}
          />
        )}
      </Popover>
      <Popover label={<Labelled icon="columns" word="Columns" />} name="Columns">
        {() => <Picker columns={columns} shown={shown.map(({ key }) => key)} onChange={(keys) => change({ columns: keys })} />}
      </Popover>
      <GroupBy columns={columns} group={view.group} onChange={(group) => change({ group })} />
      <Popover label="Views" name="Views">
        {(close) => (
          <Views
            where={where}
            view={view}
            onChoose={(next) => {
              close();
              change(next);
            }}
            onReset={() => {
              close();
              reset();
            }}
          />
        )}
      </Popover>
      <Popover label={<Icon name="more" />} name="Looks and export" className="plain">
        {(close) => (
          <div className="verbs">
            <Check word="Show archived" isOn={view.archived} onChange={(archived) => change({ archived })} />
            <Check word="Heat colours" isOn={view.heat.includes("*")} onChange={(on) => change({ heat: on ? ["*"] : [] })} />
            <Check word="Dense rows" isOn={view.dense} onChange={(dense) => change({ dense }, { push: false })} />
            <hr />
            <button
              type="button"
              onClick={() => {
                close();
                onExport();
              }}
            >
              <Icon name="download" size={14} />
              Export as CSV
            </button>
          </div>
        )}
      </Popover>
    </>
  );
  return (
    <div className="toolbar">
      <div className="tools">
        <Search value={view.search} onChange={(search) => change({ search }, { push: false })} what={what} />
        {isNarrow ? (
          <button type="button" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            <Labelled icon="settings" word="View" />
          </button>
        ) : (
          tools
        )}
        <span className="status muted num" role="status">
          {status}
        </span>
      </div>
      {isNarrow && (isOpen || filterBy) && <div className="tools">{tools}</div>}
      <Chips view={view} columns={named} onChange={change} />
    </div>
  );
}

function Labelled({ icon, word }: { icon: "filter" | "columns" | "settings"; word: string }) {
  return (
    <>
      <Icon name={icon} size={14} />
      {word}
    </>
  );
}

function Check({ word, isOn, onChange }: { word: string; isOn: boolean; onChange: (on: boolean) => void }) {
  return (
    <label className="check-line">
      <input type="checkbox" checked={isOn} onChange={(event) => onChange(event.target.checked)} />
      {word}
    </label>
  );
}

/** Values that hardly repeat (times, texts that name one run) still can be grouped by; the list does not judge. */
function GroupBy({ columns, group, onChange }: { columns: readonly Column[]; group: string | null; onChange: (key: string | null) => void }) {
  return (
    <select className={group ? "on" : ""} aria-label="Group by" value={group ?? ""} onChange={(event) => onChange(event.target.value || null)}>
      <option value="">Group by</option>
      {sections.map(({ section, title }) => {
        const own = columns.filter((column) => column.section === section && column.operators.length > 0);
        return own.length ? (
          <optgroup key={section} label={title}>
            {own.map(({ key, title: name }) => (
              <option key={key} value={key}>
                {name}
              </option>
            ))}
          </optgroup>
        ) : null;
      })}
    </select>
  );
}
