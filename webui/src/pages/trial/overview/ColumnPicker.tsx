// Which metrics are columns of the table of reports.
import { useEffect, useRef } from "react";
import { Icon } from "../../../parts";

interface ColumnPickerProps {
  all: { key: string; group: string; name: string }[];
  chosen: string[];
  onChoose: (chosen: string[]) => void;
}

export function ColumnPicker({ all, chosen, onChoose }: ColumnPickerProps) {
  const root = useRef<HTMLDetailsElement>(null);
  useEffect(() => {
    const away = (event: Event) => {
      const isOutside = !(event.target instanceof Node && root.current?.contains(event.target));
      const isEscape = event instanceof KeyboardEvent && event.key === "Escape";
      if (root.current && (event instanceof KeyboardEvent ? isEscape : isOutside)) root.current.open = false;
    };
    document.addEventListener("pointerdown", away);
    document.addEventListener("keydown", away);
    return () => {
      document.removeEventListener("pointerdown", away);
      document.removeEventListener("keydown", away);
    };
  }, []);
  if (all.length < 2) return null;
  const toggle = (key: string) => onChoose(chosen.includes(key) ? chosen.filter((one) => one !== key) : [...chosen, key]);
  return (
    <details className="metric-picker" ref={root}>
      <summary className="button">
        <Icon name="columns" /> Metrics
      </summary>
      <div className="metric-picker-list">
        {all.map((metric) => (
          <label key={metric.key} className="row" title={`${metric.group}: ${metric.name}`}>
            <input type="checkbox" checked={chosen.includes(metric.key)} onChange={() => toggle(metric.key)} />
            <span className="clip">
              {metric.name} <span className="muted">{metric.group}</span>
            </span>
          </label>
        ))}
      </div>
    </details>
  );
}
