// A short piece of the line that a curve is drawn with.
export function Swatch({ color, dash = [] }: { color: string; dash?: readonly number[] }) {
  return (
    <svg className="swatch" width="16" height="8" aria-hidden focusable="false">
      <line x1="0" x2="16" y1="4" y2="4" stroke={color} strokeWidth="2" strokeDasharray={dash.map((length) => length * 0.75).join(" ")} />
    </svg>
  );
}
