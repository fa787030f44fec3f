// One line of the filter builder: column, operator, value. The value's field follows the type of the column.
import { useEffect, useState } from "react";
import { Icon } from "../../parts";
import type { Column, Operator } from "../types";
import { sections } from "../view/columns";
import type { Condition, Value } from "../view/filter";
import { needsValue } from "../view/filter";
import { bytes, duration } from "../../format";
import { hints, readValue } from "../view/values";

const states = ["ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR", "QUEUED", "STARTING", "RUNNING", "STOPPING_CANCELED", "STOPPING_KILLED"];

interface ConditionLineProps {
  condition: Condition;
  columns: readonly Column[];
  onChange: (next: Condition) => void;
  onRemove: () => void;
}

/** A condition on a column that just began: its first operator, no value. */
export const begun = (column: Column): Condition => ({ column: column.key, operator: column.operators[0] ?? "is" });

export function ConditionLine({ condition, columns, onChange, onRemove }: ConditionLineProps) {
  const column = columns.find(({ key }) => key === condition.column);
  const choose = (key: string) => {
    const next = columns.find((one) => one.key === key);
    if (!next) return;
    const isSameKind = next.type === column?.type;
    onChange(isSameKind ? { ...condition, column: key } : begun(next));
  };
  const operate = (operator: Operator) => {
    const { value: _, ...rest } = condition;
    onChange(needsValue(operator) ? { ...condition, operator } : { ...rest, operator });
  };
  return (
    <div className="condition">
      <select aria-label="Column" value={condition.column} onChange={(event) => choose(event.target.value)}>
        {!column && <option value={condition.column}>{condition.column}</option>}
        {sections.map(({ section, title }) => {
          const own = columns.filter((one) => one.section === section && one.operators.length > 0);
          return own.length ? (
            <optgroup key={section} label={title}>
              {own.map((one) => (
                <option key={one.key} value={one.key}>
                  {one.title}
                </option>
              ))}
            </optgroup>
          ) : null;
        })}
      </select>
      <select aria-label="Operator" value={condition.operator} onChange={(event) => operate(event.target.value as Operator)}>
        {(column?.operators ?? [condition.operator]).map((operator) => (
          <option key={operator}>{operator}</option>
        ))}
      </select>
      {needsValue(condition.operator) ? (
        <ValueField key={condition.column} column={column} value={condition.value} onChange={(value) => onChange(withValue(condition, value))} />
      ) : (
        <span />
      )}
      <button type="button" className="plain" aria-label="Remove this condition" onClick={onRemove}>
        <Icon name="close" size={14} />
      </button>
    </div>
  );
}

function withValue({ column, operator }: Condition, value: Value | undefined): Condition {
  return value === undefined ? { column, operator } : { column, operator, value };
}

interface ValueFieldProps {
  column: Column | undefined;
  value: Value | undefined;
  onChange: (value: Value | undefined) => void;
}

function ValueField({ column, value, onChange }: ValueFieldProps) {
  const type = column?.type ?? "text";
  if (type === "state" || type === "boolean") {
    const words = type === "state" ? states : ["true", "false"];
    const known = value === undefined || words.includes(String(value)) ? words : [String(value), ...words];
    return (
      <select data-begin aria-label="Value" value={value === undefined ? "" : String(value)} onChange={(event) => onChange(readValue(event.target.value, type))}>
        <option value="">Choose</option>
        {known.map((word) => (
          <option key={word} value={word}>
            {type === "state" ? word.replaceAll("_", " ") : word === "true" ? "yes" : "no"}
          </option>
        ))}
      </select>
    );
  }
  if (type === "time") {
    return (
      <input
        type="datetime-local"
        data-begin
        aria-label="Value, in UTC"
        title="In UTC"
        value={typeof value === "string" ? (value.length === 10 ? `${value}T00:00` : value.slice(0, 16)) : ""}
        onChange={(event) => onChange(event.target.value || undefined)}
      />
    );
  }
  return <TextField type={type} value={value} onChange={onChange} />;
}

function shownText(value: Value | undefined, type: Column["type"]): string {
  if (value === undefined) return "";
  if (type === "duration" && typeof value === "number") return duration(value);
  return type === "bytes" && typeof value === "number" ? bytes(value) : String(value);
}

/** Typed text is kept as it is while the field has the focus; what it means goes to the filter. */
function TextField({ type, value, onChange }: { type: Column["type"]; value: Value | undefined; onChange: (value: Value | undefined) => void }) {
  const [text, setText] = useState(() => shownText(value, type));
  const isWrong = text !== "" && readValue(text, type) === undefined;
  useEffect(() => {
    if (value !== undefined && readValue(text, type) !== value) setText(shownText(value, type));
  }, [value]);
  const type_ = (next: string) => {
    setText(next);
    onChange(readValue(next, type));
  };
  return (
    <input
      type="text"
      data-begin
      aria-label="Value"
      aria-invalid={isWrong}
      title={isWrong ? `"${text}" is not a ${type}. Write for example ${hints[type] ?? "a value"}.` : undefined}
      placeholder={hints[type]}
      value={text}
      onChange={(event) => type_(event.target.value)}
    />
  );
}
