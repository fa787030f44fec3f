// The search field: in the address a moment after the last letter, so that each letter is not a question.
import { useEffect, useRef, useState } from "react";
import { Icon } from "../../parts";

const pause = 200;

export function Search({ value, onChange, what }: { value: string; onChange: (text: string) => void; what: string }) {
  const [text, setText] = useState(value);
  const written = useRef(value);
  useEffect(() => {
    // The address changed by other means: the back button, a saved view.
    if (value !== written.current) setText(value);
    written.current = value;
  }, [value]);
  useEffect(() => {
    if (text === written.current) return undefined;
    const timer = setTimeout(() => {
      written.current = text;
      onChange(text);
    }, pause);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <span className="field-icon">
      <Icon name="search" size={14} />
      <input
        type="search"
        value={text}
        maxLength={200}
        placeholder={`Search ${what}`}
        aria-label={`Search ${what} by name, label, description or number`}
        onChange={(event) => setText(event.target.value)}
      />
    </span>
  );
}
