// What narrows the table, as sentences that can be taken away.
import { Chip } from "../../parts";
import { none, replaced } from "../view/filter";
import type { Named } from "../view/sentence";
import { chips, lowered } from "../view/sentence";
import type { View } from "../view/view";

interface ChipsProps {
  view: View;
  columns: Named;
  onChange: (patch: Partial<View>) => void;
}

export function Chips({ view, columns, onChange }: ChipsProps) {
  const filters = chips(view.filter, columns);
  if (!filters.length && !view.group && !view.archived) return null;
  return (
    <div className="chips" role="group" aria-label="What is shown">
      {filters.map(({ text, place }) => (
        <Chip key={`${place} ${text}`} name={text} onRemove={() => onChange({ filter: place === null ? none : replaced(view.filter, [place], undefined) })}>
          {text}
        </Chip>
      ))}
      {view.group && (
        <Chip name="grouping" onRemove={() => onChange({ group: null })}>
          grouped by {lowered(columns.get(view.group), view.group)}
        </Chip>
      )}
      {view.archived && (
        <Chip name="archived" onRemove={() => onChange({ archived: false })}>
          with archived
        </Chip>
      )}
    </div>
  );
}
