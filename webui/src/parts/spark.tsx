// A curve the size of a word: which way it goes, no more. Gaps where a value was not finite.
export function sparkPath(values: readonly (number | null)[], width: number, height: number): string {
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  const low = Math.min(...finite);
  const span = Math.max(...finite) - low || 1;
  const step = width / Math.max(1, values.length - 1);
  let pen = "M";
  let path = "";
  for (const [place, value] of values.entries()) {
    if (value === null || !Number.isFinite(value)) {
      pen = "M";
      continue;
    }
    path += `${pen}${(place * step).toFixed(1)} ${(height - ((value - low) / span) * height).toFixed(1)}`;
    pen = "L";
  }
  return path;
}

interface SparkProps {
  values: readonly (number | null)[] | null | undefined;
  /** What it shows, for those who cannot see it. */
  label: string;
  width?: number;
  height?: number;
}

export function Spark({ values, label, width = 96, height = 20 }: SparkProps) {
  if (!values || values.length < 2) return null;
  return (
    <svg className="spark" width={width} height={height + 2} viewBox={`0 -1 ${width} ${height + 2}`} role="img" aria-label={label}>
      <path d={sparkPath(values, width, height)} fill="none" stroke="var(--muted)" strokeWidth={1.2} strokeLinejoin="round" />
    </svg>
  );
}
