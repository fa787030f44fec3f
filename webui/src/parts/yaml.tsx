// A plain editor for YAML: a textarea with line numbers, and marks on lines that were refused.
import type { KeyboardEvent } from "react";
import { useRef } from "react";

export interface LineError {
  /** From 1; without it the message belongs to the whole text. */
  line?: number | null | undefined;
  message: string;
}

interface YamlEditorProps {
  value: string;
  onChange?: (value: string) => void;
  errors?: LineError[];
  rows?: number;
  label?: string;
}

/** Tab indents by two spaces; Esc then Tab leaves, so that the keyboard is not caught. */
function indented(event: KeyboardEvent<HTMLTextAreaElement>): void {
  const area = event.currentTarget;
  if (event.key === "Escape") {
    event.preventDefault(); // or the dialog around it would close
    area.dataset.leave = "1";
  } else if (event.key === "Tab" && !event.shiftKey && !area.dataset.leave) {
    event.preventDefault();
    area.setRangeText("  ", area.selectionStart, area.selectionEnd, "end");
    area.dispatchEvent(new Event("input", { bubbles: true }));
  } else delete area.dataset.leave;
}

export function YamlEditor({ value, onChange, errors = [], rows = 18, label = "Configuration as YAML" }: YamlEditorProps) {
  const lines = useRef<HTMLDivElement>(null);
  const total = value.split("\n").length;
  const bad = new Map(errors.map((error) => [error.line, error.message]));
  return (
    <div className="stack" style={{ gap: 8 }}>
      <div className="yaml">
        <div className="yaml-lines" ref={lines} aria-hidden style={{ height: rows * 18 + 16 }}>
          {Array.from({ length: total }, (_, place) => (
            <div key={place} className={bad.has(place + 1) ? "bad" : ""} title={bad.get(place + 1)}>
              {place + 1}
            </div>
          ))}
        </div>
        <textarea
          aria-label={label}
          aria-invalid={errors.length > 0}
          value={value}
          readOnly={!onChange}
          spellCheck={false}
          wrap="off"
          style={{ height: rows * 18 + 16 }}
          onChange={(event) => onChange?.(event.target.value)}
          onKeyDown={onChange && indented}
          onScroll={(event) => lines.current?.scrollTo(0, event.currentTarget.scrollTop)}
        />
      </div>
      {errors.map((error) => (
        <div key={`${error.line} ${error.message}`} className="note-error" role="alert">
          {error.line ? <span className="muted num">line {error.line}</span> : null}
          <span className="grow">{error.message}</span>
        </div>
      ))}
    </div>
  );
}
