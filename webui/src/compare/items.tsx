// The things that are compared, each with its colour: the legend of all tabs. A click hides one from the charts.
import type { Item } from "./usecomparison";

/** A short piece of the line that a curve is drawn with. */
export function Swatch({ item }: { item: Pick<Item, "color" | "dash"> }) {
  return (
    <svg className="item-line" width="16" height="8" aria-hidden focusable="false">
      <line x1="0" y1="4" x2="16" y2="4" stroke={item.color} strokeWidth="2.5" strokeDasharray={item.dash.join(" ") || undefined} />
    </svg>
  );
}

interface ItemsProps {
  items: readonly Item[];
  hidden: ReadonlySet<number>;
  onToggle: (id: number) => void;
  lit: number | undefined;
  onLight: (id: number | undefined) => void;
}

export function Items({ items, hidden, onToggle, lit, onLight }: ItemsProps) {
  return (
    <div className="compare-items" role="group" aria-label="Shown in the charts">
      {items.map((item) => (
        <button
          key={item.id}
          type="button"
          className={lit === item.id ? "plain lit" : "plain"}
          aria-pressed={!hidden.has(item.id)}
          title={`${item.name}: ${hidden.has(item.id) ? "show" : "hide"}`}
          onClick={() => onToggle(item.id)}
          onPointerEnter={() => onLight(item.id)}
          onPointerLeave={() => onLight(undefined)}
        >
          <Swatch item={item} />
          <span className="clip">{item.name}</span>
        </button>
      ))}
    </div>
  );
}
