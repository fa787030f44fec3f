// Tags as chips; Enter or a comma adds what was typed.
import { useState } from "react";
import { Chip } from "../parts";

export function TagsField({ tags, onChange }: { tags: string[]; onChange: (tags: string[]) => void }) {
  const [typed, setTyped] = useState("");
  const add = () => {
    const fresh = typed.trim();
    if (fresh && !tags.includes(fresh)) onChange([...tags, fresh]);
    setTyped("");
  };
  return (
    <div className="field tags">
      <label className="field">
        Tags
        <input
          value={typed}
          maxLength={200}
          placeholder="Type one and press Enter"
          onChange={(event) => setTyped(event.target.value)}
          onBlur={add}
          onKeyDown={(event) => {
            if (event.key !== "Enter" && event.key !== ",") return;
            event.preventDefault(); // Enter would submit the dialog
            add();
          }}
        />
      </label>
      {tags.length > 0 && (
        <div className="row">
          {tags.map((tag) => (
            <Chip key={tag} name={tag} onRemove={() => onChange(tags.filter((one) => one !== tag))}>
              {tag}
            </Chip>
          ))}
        </div>
      )}
    </div>
  );
}
