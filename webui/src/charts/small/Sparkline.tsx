// A curve the size of a word, for rows of tables. It has no axes: the number beside it says the value.
import { useMemo } from "react";
import { short } from "../../format";
import { spark } from "./sparkline";
import "./small.css";

interface SparklineProps {
  /** Null where a point was not finite. */
  values: readonly (number | null)[];
  /** What the curve is of, for those who cannot see it: "loss". */
  name?: string;
  /** A CSS colour; by default the colour of muted text. */
  color?: string;
  width?: number;
  height?: number;
}

function said(values: readonly (number | null)[], name: string): string {
  const finite = values.filter((value): value is number => value !== null);
  if (!finite.length) return `${name}: no values`;
  return `${name} from ${short(finite[0] as number)} to ${short(finite.at(-1) as number)}`;
}

export function Sparkline({ values, name = "curve", color = "var(--muted)", width = 72, height = 20 }: SparklineProps) {
  const { path, dots } = useMemo(() => spark(values, width, height), [values, width, height]);
  return (
    <svg className="sparkline" width={width} height={height} role="img" aria-label={said(values, name)} style={{ color }}>
      <path d={path} />
      {dots.map(([x, y]) => (
        <circle key={x} cx={x} cy={y} r="1.5" />
      ))}
    </svg>
  );
}
