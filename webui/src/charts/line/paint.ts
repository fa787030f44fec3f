// Draws lines, bands and marks on the canvas of a chart. It knows pixels; what to draw was decided before.
import type { Line } from "../logic/lines";
import { extentY, window } from "../logic/lines";
import type { Span } from "../logic/ticks";

export interface Palette {
  bg: string;
  text: string;
  muted: string;
  line: string;
  font: string;
}

export interface Scene {
  lines: readonly Line[];
  /** The smoothed values of each line, by its id; empty without smoothing. */
  smoothed: ReadonlyMap<string, readonly (number | null)[]>;
  isLog: boolean;
  /** The trial to stand out; the others step back. */
  lit: number | undefined;
  palette: Palette;
  isZoomed: boolean;
}

/** The area of the plot in canvas pixels, and the values at its edges. */
export interface Area {
  left: number;
  top: number;
  width: number;
  height: number;
  x: Span;
  y: Span;
  ratio: number;
}

type Column = readonly (number | null | undefined)[];
type ToX = (x: number) => number;
type ToY = (y: number) => number | undefined;

export function scales(area: Area, isLog: boolean): [ToX, ToY] {
  const across = area.width / (area.x[1] - area.x[0]);
  const bottom = area.top + area.height;
  const [low, high] = isLog ? [Math.log10(area.y[0]), Math.log10(area.y[1])] : area.y;
  const up = area.height / (high - low);
  const toY = (y: number) => (isLog ? (y > 0 ? bottom - (Math.log10(y) - low) * up : undefined) : bottom - (y - low) * up);
  return [(x) => area.left + (x - area.x[0]) * across, toY];
}

/** A path through the values; null begins a new piece. Points that stand alone are returned, to be dots. */
function trace(path: CanvasPath, line: Line, column: Column, span: [number, number], toX: ToX, toY: ToY): [number, number][] {
  const alone: [number, number][] = [];
  const at = (place: number) => {
    const value = place < span[0] || place > span[1] ? null : column[place];
    return value === null || value === undefined ? undefined : toY(value);
  };
  let isDown = false;
  for (let place = span[0]; place <= span[1]; place++) {
    const y = at(place);
    if (y === undefined) {
      isDown = false;
      continue;
    }
    const x = toX(line.xs[place] as number);
    if (isDown) path.lineTo(x, y);
    else path.moveTo(x, y);
    if (!isDown && at(place + 1) === undefined) alone.push([x, y]);
    isDown = true;
  }
  return alone;
}

function band(ctx: CanvasRenderingContext2D, line: Line, span: [number, number], toX: ToX, toY: ToY): void {
  const { lows, highs } = line;
  if (!lows || !highs) return;
  let piece: [number, number, number][] = [];
  const close = () => {
    if (piece.length > 1) {
      ctx.beginPath();
      for (const [x, , high] of piece) ctx.lineTo(x, high);
      for (const [x, low] of piece.reverse()) ctx.lineTo(x, low);
      ctx.fill();
    }
    piece = [];
  };
  for (let place = span[0]; place <= span[1]; place++) {
    const low = lows[place] ?? null;
    const high = highs[place] ?? null;
    const ys = low === null || high === null ? undefined : [toY(low), toY(high)];
    if (ys?.[0] === undefined || ys[1] === undefined) close();
    else piece.push([toX(line.xs[place] as number), ys[0], ys[1]]);
  }
  close();
}

function dots(ctx: CanvasRenderingContext2D, points: readonly [number, number][], radius: number): void {
  for (const [x, y] of points) {
    ctx.beginPath();
    ctx.arc(x, y, radius, 0, 2 * Math.PI);
    ctx.fill();
  }
}

/** Where few lines have few points, points are shown as such: in all lines or in none. */
function isSparse(lines: readonly Line[], area: Area): boolean {
  const most = Math.min(60, area.width / area.ratio / 12);
  const many = (line: Line) => {
    const [from, to] = window(line.xs, area.x);
    return to - from + 1;
  };
  return lines.length <= 6 && lines.every((line) => many(line) <= most);
}

function dotsOf(line: Line, span: [number, number], toX: ToX, toY: ToY): [number, number][] {
  const points: [number, number][] = [];
  for (let place = span[0]; place <= span[1]; place++) {
    const value = line.ys[place];
    const y = value === null || value === undefined ? undefined : toY(value);
    if (y !== undefined) points.push([toX(line.xs[place] as number), y]);
  }
  return points;
}

function paintLine(ctx: CanvasRenderingContext2D, scene: Scene, line: Line, area: Area, [toX, toY]: [ToX, ToY], hasDots: boolean): void {
  const span = window(line.xs, area.x);
  const isLit = scene.lit === line.trialId;
  const calm = scene.lit !== undefined && !isLit ? 0.25 : 1;
  const strength = (line.isFaint && !isLit ? 0.4 : 1) * calm;
  const width = (isLit ? 2.25 : line.isFaint ? 1 : 1.5) * area.ratio;
  const smoothed = scene.smoothed.get(line.id);
  ctx.strokeStyle = ctx.fillStyle = line.color;
  if (line.lows && line.highs && (!line.isFaint || isLit)) {
    ctx.globalAlpha = 0.14 * calm;
    band(ctx, line, span, toX, toY);
    // Edges, because a spike of one bucket is too thin to be seen as a surface.
    ctx.globalAlpha = 0.35 * calm;
    ctx.lineWidth = 0.75 * area.ratio;
    for (const edge of [line.lows, line.highs]) {
      ctx.beginPath();
      trace(ctx, line, edge, span, toX, toY);
      ctx.stroke();
    }
  }
  const stroke = (column: Column, alpha: number, thick: number, dash: readonly number[]) => {
    ctx.globalAlpha = alpha;
    ctx.lineWidth = thick;
    ctx.setLineDash(dash.map((length) => length * area.ratio));
    ctx.beginPath();
    const alone = trace(ctx, line, column, span, toX, toY);
    ctx.stroke();
    ctx.setLineDash([]);
    return alone;
  };
  // The raw line stays visible below the smoothed one.
  if (smoothed) stroke(line.ys, strength * 0.28, area.ratio, []);
  const alone = stroke(smoothed ?? line.ys, strength, width, line.isFaint && !isLit ? [] : line.dash);
  dots(ctx, alone, 2 * area.ratio);
  if (!smoothed && hasDots && !line.isFaint) dots(ctx, dotsOf(line, span, toX, toY), 2 * area.ratio);
}

/** NaN is a cross on the axis; infinities are arrows at the edge they left by. */
function paintOdd(ctx: CanvasRenderingContext2D, line: Line, area: Area, toX: ToX, taken: Set<string>): void {
  const size = 3.5 * area.ratio;
  ctx.globalAlpha = 1;
  ctx.strokeStyle = ctx.fillStyle = line.color;
  ctx.lineWidth = 1.5 * area.ratio;
  for (const { x, value } of line.odd) {
    if (x < area.x[0] || x > area.x[1]) continue;
    const left = toX(x);
    // Marks that lie over each other are one.
    const spot = `${value} ${Math.round(left / (2.5 * size))}`;
    if (taken.has(spot)) continue;
    taken.add(spot);
    const isTop = value === "Infinity";
    const y = isTop ? area.top + size : area.top + area.height - size;
    ctx.beginPath();
    if (value === "NaN") {
      ctx.moveTo(left - size, y - size);
      ctx.lineTo(left + size, y + size);
      ctx.moveTo(left + size, y - size);
      ctx.lineTo(left - size, y + size);
      ctx.stroke();
    } else {
      const tip = isTop ? y - size : y + size;
      const foot = isTop ? y + size : y - size;
      ctx.moveTo(left, tip);
      ctx.lineTo(left + size, foot);
      ctx.lineTo(left - size, foot);
      ctx.fill();
    }
  }
}

function paintBest(ctx: CanvasRenderingContext2D, scene: Scene, line: Line, area: Area, [toX, toY]: [ToX, ToY]): void {
  const at = line.bestX;
  if (at === undefined || at < area.x[0] || at > area.x[1]) return;
  const place = line.xs.findIndex((x) => x >= at);
  const value = line.ys[place < 0 ? line.ys.length - 1 : place];
  const y = value === null || value === undefined ? undefined : toY(value);
  if (y === undefined) return;
  ctx.globalAlpha = 1;
  ctx.beginPath();
  ctx.arc(toX(at), y, 4.5 * area.ratio, 0, 2 * Math.PI);
  ctx.fillStyle = scene.palette.bg;
  ctx.fill();
  ctx.strokeStyle = line.color;
  ctx.lineWidth = 2 * area.ratio;
  ctx.stroke();
}

interface End {
  line: Line;
  y: number;
}

/** Which names are written at the ends of lines: the first lines first, and only those that touch no other. */
export function placeEnds<T extends { y: number }>(ends: readonly T[], least: number): T[] {
  const placed: T[] = [];
  for (const end of ends) if (placed.every((other) => Math.abs(other.y - end.y) >= least)) placed.push(end);
  return placed;
}

function paintEnds(ctx: CanvasRenderingContext2D, scene: Scene, area: Area, room: number, toY: ToY): void {
  if (room <= 0) return;
  const named = scene.lines.filter((line) => (scene.lit === undefined ? !line.isFaint : line.trialId === scene.lit));
  const ends = named.flatMap((line): End[] => {
    const column = scene.smoothed.get(line.id) ?? line.ys;
    let place = window(line.xs, area.x)[1];
    while (place > 0 && ((column[place] ?? null) === null || (line.xs[place] as number) > area.x[1])) place--;
    const value = column[place];
    const y = value === null || value === undefined ? undefined : toY(value);
    // A name far from where its line ended would seem to belong to another.
    const isNear = ((area.x[1] - (line.xs[place] ?? -Infinity)) / (area.x[1] - area.x[0])) * area.width < 40 * area.ratio;
    return y === undefined || !isNear || y < area.top || y > area.top + area.height ? [] : [{ line, y }];
  });
  ctx.font = scene.palette.font;
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  ctx.globalAlpha = 1;
  for (const { line, y } of placeEnds(ends, 13 * area.ratio)) {
    ctx.fillStyle = line.color;
    ctx.fillText(line.name, area.left + area.width + 6 * area.ratio, y, (room - 8) * area.ratio);
  }
}

function paintNothing(ctx: CanvasRenderingContext2D, scene: Scene, area: Area): void {
  ctx.save();
  ctx.font = scene.palette.font;
  ctx.textAlign = "center";
  ctx.textBaseline = "middle";
  ctx.fillStyle = scene.palette.muted;
  ctx.fillText("No points in this range", area.left + area.width / 2, area.top + area.height / 2);
  ctx.restore();
}

/** Draw everything. `room` is the space for names right of the plot, in CSS pixels. */
export function paint(ctx: CanvasRenderingContext2D, scene: Scene, area: Area, room: number): void {
  const to = scales(area, scene.isLog);
  // Pale lines first, the one that stands out last.
  const rank = (line: Line) => (line.trialId === scene.lit ? 2 : line.isFaint ? 0 : 1);
  const order = [...scene.lines].sort((one, other) => rank(one) - rank(other));
  ctx.save();
  ctx.beginPath();
  // Dots and marks may stick out of the plot; lines that go on beyond a zoom may not.
  const air = scene.isZoomed ? 0 : 5 * area.ratio;
  ctx.rect(area.left - air, area.top - 6 * area.ratio, area.width + 2 * air, area.height + 6 * area.ratio);
  ctx.clip();
  ctx.lineJoin = "round";
  const hasDots = isSparse(scene.lines, area);
  for (const line of order) paintLine(ctx, scene, line, area, to, hasDots);
  const taken = new Set<string>();
  for (const line of order.toReversed()) paintOdd(ctx, line, area, to[0], taken);
  for (const line of order) if (!line.isFaint) paintBest(ctx, scene, line, area, to);
  ctx.restore();
  if (scene.isZoomed && !extentY(scene.lines, area.x, scene.isLog)) paintNothing(ctx, scene, area);
  ctx.save();
  paintEnds(ctx, scene, area, room, to[1]);
  ctx.restore();
}
