// A value of any kind in one line: numbers short, text as it is, the rest as JSON. The whole value is on hover.
import { Num } from "../../parts";
import "./shared.css";

export function asText(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value) ?? "");
}

const isOdd = (value: unknown): value is string => value === "NaN" || value === "Infinity" || value === "-Infinity";

export function JsonValue({ value }: { value: unknown }) {
  if (value === null || value === undefined) return <span className="muted">–</span>;
  if (typeof value === "number" || isOdd(value)) return <Num value={value} />;
  const text = asText(value);
  return (
    <span className="clip json-value" title={text.slice(0, 2000)}>
      {text.slice(0, 500)}
    </span>
  );
}
