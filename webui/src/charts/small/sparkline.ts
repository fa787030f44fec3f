// The path of a small curve.

export interface Spark {
  /** An SVG path; gaps begin a new piece. */
  path: string;
  /** Points that stand alone between gaps, and the last one. */
  dots: [number, number][];
}

const inset = 2;

/** Fit values into a box. Null leaves a gap; a flat curve runs through the middle. */
export function spark(values: readonly (number | null)[], width: number, height: number): Spark {
  const finite = values.filter((value): value is number => value !== null && Number.isFinite(value));
  const low = Math.min(...finite);
  const room = Math.max(...finite) - low;
  const at = (value: number, place: number): [number, number] => [
    values.length < 2 ? width / 2 : inset + (place / (values.length - 1)) * (width - 2 * inset),
    room > 0 ? height - inset - ((value - low) / room) * (height - 2 * inset) : height / 2,
  ];
  let path = "";
  const dots: [number, number][] = [];
  for (const [place, value] of values.entries()) {
    if (value === null || !Number.isFinite(value)) continue;
    const [x, y] = at(value, place);
    const isFirst = place === 0 || values[place - 1] === null;
    const isLast = place === values.length - 1 || values[place + 1] === null;
    if (isFirst && isLast) dots.push([x, y]);
    else path += `${isFirst ? "M" : "L"}${x.toFixed(1)} ${y.toFixed(1)}`;
  }
  return { path, dots };
}
