// Views under names: choose one, keep the present one, let one go.
import { useState } from "react";
import { Icon } from "../../parts";
import { forgetView, saveView, savedViews } from "../view/saved";
import type { View } from "../view/view";
import { parseView, viewText } from "../view/view";

interface ViewsProps {
  where: string;
  view: View;
  onChoose: (view: View) => void;
  onReset: () => void;
}

export function Views({ where, view, onChoose, onReset }: ViewsProps) {
  const [views, setViews] = useState(() => savedViews(where));
  const [name, setName] = useState("");
  const now = viewText(view);
  const keep = (called: string) => {
    setViews(saveView(where, called, view));
    setName("");
  };
  return (
    <div className="views">
      {views.length === 0 && <p className="muted">No view is saved yet. A view is the columns, order, filter and groups you see now.</p>}
      <ul>
        {views.map((one) => (
          <li key={one.name} className="row">
            <button type="button" className="plain grow" aria-current={one.text === now} onClick={() => onChoose(parseView(one.text)!)}>
              {one.text === now ? <Icon name="check" size={14} /> : <span className="check-room" />}
              <span className="clip">{one.name}</span>
            </button>
            <button type="button" className="plain" title="Replace it by what you see now" aria-label={`Replace ${one.name}`} onClick={() => keep(one.name)}>
              <Icon name="edit" size={14} />
            </button>
            <button type="button" className="plain" aria-label={`Delete ${one.name}`} title="Delete" onClick={() => setViews(forgetView(where, one.name))}>
              <Icon name="trash" size={14} />
            </button>
          </li>
        ))}
      </ul>
      <form
        className="row"
        onSubmit={(event) => {
          event.preventDefault();
          if (name.trim()) keep(name.trim());
        }}
      >
        <input type="text" className="grow" value={name} maxLength={80} placeholder="Name for this view" aria-label="Name for this view" onChange={(event) => setName(event.target.value)} />
        <button type="submit" disabled={!name.trim()}>
          Save
        </button>
      </form>
      <button type="button" className="plain" onClick={onReset}>
        Back to the usual view
      </button>
    </div>
  );
}
