// Lines of the table: rows, and above each group of rows a line that names it and folds it away. From the counts of the
// groups alone it is known which row stands on which line, so that only the lines in sight are fetched.

export type Line = { kind: "row"; offset: number } | { kind: "group"; value: string; count: number; isFolded: boolean };

interface Part {
  value: string;
  count: number;
  isFolded: boolean;
  /** Line of its name, and offset of its first row. */
  line: number;
  offset: number;
}

export class Layout {
  private parts: Part[] = [];
  readonly count: number;

  /** `groups` is null when rows are not grouped. */
  constructor(total: number, groups: readonly (readonly [string, number])[] | null, folded: ReadonlySet<string> = new Set()) {
    let line = 0;
    let offset = 0;
    for (const [value, count] of groups ?? []) {
      const isFolded = folded.has(value);
      this.parts.push({ value, count, isFolded, line, offset });
      line += 1 + (isFolded ? 0 : count);
      offset += count;
    }
    this.count = groups ? line : total;
  }

  at(line: number): Line {
    const part = this.last((one) => one.line <= line);
    if (!part) return { kind: "row", offset: line };
    if (part.line === line) return { kind: "group", value: part.value, count: part.count, isFolded: part.isFolded };
    return { kind: "row", offset: part.offset + line - part.line - 1 };
  }

  /** The line of a row; undefined while its group is folded. */
  lineOf(offset: number): number | undefined {
    const part = this.last((one) => one.offset <= offset);
    if (!part) return offset;
    return part.isFolded ? undefined : part.line + 1 + offset - part.offset;
  }

  /** The row that lies `by` lines from this one, among those in sight; folded groups and names of groups are passed over. */
  moved(offset: number, by: number): number {
    const start = this.lineOf(offset) ?? this.last((one) => one.offset <= offset)?.line ?? 0;
    const way = by < 0 ? -1 : 1;
    const isThere = (line: number) => line >= 0 && line < this.count;
    let line = Math.max(0, Math.min(this.count - 1, start + by));
    while (isThere(line) && this.at(line).kind === "group") line += way;
    // Past the end there is nothing: the last row before it.
    if (!isThere(line)) for (line -= way; isThere(line) && this.at(line).kind === "group"; ) line -= way;
    const found = isThere(line) ? this.at(line) : undefined;
    return found?.kind === "row" ? found.offset : offset;
  }

  private last(fits: (part: Part) => boolean): Part | undefined {
    let low = 0;
    let high = this.parts.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (fits(this.parts[middle]!)) low = middle + 1;
      else high = middle;
    }
    return this.parts[low - 1];
  }
}

/** The pages (of `size` rows) that hold these offsets. */
export function pagesOf(offsets: readonly number[], size: number): number[] {
  return [...new Set(offsets.map((offset) => Math.floor(offset / size)))].sort((one, other) => one - other);
}

/**
 * By how many rows what is in sight has moved since, so that the page scrolls with it and nothing jumps.
 *
 * `before` and `after` tell the offset of rows by id. Most rows in sight must have moved alike: when an order by a live
 * metric shuffles a few, the rest stands still.
 */
export function drift(before: readonly { id: number; offset: number }[], after: ReadonlyMap<number, number>): number {
  const votes = new Map<number, number>();
  for (const { id, offset } of before) {
    const now = after.get(id);
    if (now !== undefined) votes.set(now - offset, (votes.get(now - offset) ?? 0) + 1);
  }
  const [way, most] = [...votes].reduce((one, other) => (other[1] > one[1] ? other : one), [0, 0]);
  return most * 2 > before.length ? way : 0;
}
