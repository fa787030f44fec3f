// The filter builder: groups of conditions of which all or any have to hold. Each change acts at once; what is not finished
// yet does not filter.
import { useEffect, useState } from "react";
import { Icon } from "../../parts";
import type { Column } from "../types";
import type { Group, Path } from "../view/filter";
import { appended, deepest, isGroup, none, pruned, replaced } from "../view/filter";
import { filterText } from "../view/filtertext";
import { ConditionLine, begun } from "./condition";

interface FiltersProps {
  filter: Group;
  columns: readonly Column[];
  /** A condition on it is begun at once. */
  also: Column | undefined;
  onChange: (filter: Group) => void;
}

export function Filters({ filter, columns, also, onChange }: FiltersProps) {
  const first = columns.find(({ key }) => key === "run.state") ?? columns[0];
  const [draft, setDraft] = useState<Group>(() => {
    const start = also ?? (filter.items.length ? undefined : first);
    return start ? appended(filter, [], begun(start)) : filter;
  });
  useEffect(() => {
    // From outside: a chip was taken away, the back button.
    if (filterText(draft) !== filterText(filter)) setDraft(filter);
  }, [filter]);
  const change = (next: Group) => {
    setDraft(next);
    if (filterText(next) !== filterText(draft)) onChange(pruned(next));
  };
  if (!first) return <p className="muted">There is nothing to filter by yet.</p>;
  return (
    <div className="filters">
      <GroupBox group={draft} path={[]} root={draft} columns={columns} first={first} onChange={change} />
      {draft.items.length > 0 && (
        <button type="button" className="plain" onClick={() => change(none)}>
          Clear all
        </button>
      )}
    </div>
  );
}

interface GroupBoxProps {
  group: Group;
  path: Path;
  root: Group;
  columns: readonly Column[];
  first: Column;
  onChange: (root: Group) => void;
}

function GroupBox({ group, path, root, columns, first, onChange }: GroupBoxProps) {
  const join = (word: Group["join"]) => onChange(replaced(root, path, { ...group, join: word }));
  return (
    <fieldset className={path.length ? "group-box inner" : "group-box"}>
      <legend className="visually-hidden">{path.length ? "Group of conditions" : "Conditions"}</legend>
      {(group.items.length > 1 || path.length > 0) && (
        <div className="join">
          <select aria-label="How the conditions join" value={group.join} onChange={(event) => join(event.target.value as Group["join"])}>
            <option value="all">All of these</option>
            <option value="any">Any of these</option>
          </select>
          {path.length > 0 && (
            <button type="button" className="plain" aria-label="Remove this group" onClick={() => onChange(replaced(root, path, undefined))}>
              <Icon name="close" size={14} />
            </button>
          )}
        </div>
      )}
      {group.items.map((item, place) => {
        const here = [...path, place];
        return isGroup(item) ? (
          <GroupBox key={place} group={item} path={here} root={root} columns={columns} first={first} onChange={onChange} />
        ) : (
          <ConditionLine
            key={place}
            condition={item}
            columns={columns}
            onChange={(next) => onChange(replaced(root, here, next))}
            onRemove={() => onChange(replaced(root, here, undefined))}
          />
        );
      })}
      <div className="row">
        <button type="button" onClick={() => onChange(appended(root, path, begun(first)))}>
          <Icon name="plus" size={14} />
          Condition
        </button>
        {path.length < deepest - 1 && (
          <button
            type="button"
            onClick={() => onChange(appended(root, path, { join: group.join === "all" ? "any" : "all", items: [begun(first)] }))}
          >
            <Icon name="plus" size={14} />
            Group
          </button>
        )}
      </div>
    </fieldset>
  );
}
