// uPlot gives the axes, scales, cross-hair and dragging; the lines are painted by `paint`, because each has places of its
// own and a raw, a smoothed and a band of extremes, which uPlot's aligned columns would multiply.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import type { Amount } from "../logic/amounts";
import type { Line, Place } from "../logic/lines";
import { extentX, extentY, padded } from "../logic/lines";
import { smooth } from "../logic/smooth";
import type { Span } from "../logic/ticks";
import { linearTicks, logTicks, tickText, timeText, timeTicks } from "../logic/ticks";
import type { Row } from "./hover";
import { dragged, lineNear, rowsAt } from "./hover";
import type { Area, Palette, Scene } from "./paint";
import { paint } from "./paint";

export interface View {
  lines: readonly Line[];
  place: Place;
  smoothing: number;
  isLog: boolean;
  zoom: Span | undefined;
  lit: number | undefined;
  palette: Palette;
  amount: Amount;
}

export interface Hover {
  x: number;
  left: number;
  top: number;
  width: number;
  rows: Row[];
  near: Row | undefined;
}

export interface Hearers {
  onHover(hover: Hover | undefined): void;
  onZoom(span: Span | undefined): void;
  onPick(hover: Hover): void;
}

const font = "11px system-ui, sans-serif";
const near = 14;

export class LinePlot {
  private readonly plot: uPlot;
  private view: View;
  private smoothed = new Map<string, (number | null)[]>();
  private x: Span = [0, 1];
  private y: Span = [0, 1];
  private room = 0;
  private downAt = 0;
  /** Shown because another chart's cross-hair moved: no tooltip here. */
  private isFollowing = false;

  constructor(
    host: HTMLElement,
    size: { width: number; height: number },
    view: View,
    private readonly hearers: Hearers,
  ) {
    this.view = view;
    this.measure();
    this.plot = new uPlot(this.options(size), [[0, 1], [0, 1]], host);
    this.plot.over.addEventListener("mousedown", (event) => (this.downAt = event.clientX));
    this.plot.over.addEventListener("click", (event) => this.clicked(event));
  }

  /** Replace what is shown, in place: scales move, nothing flickers. */
  update(view: View): void {
    const isSame = view.lines === this.view.lines && view.zoom === this.view.zoom && view.smoothing === this.view.smoothing && view.place === this.view.place;
    this.view = view;
    if (isSame) {
      this.plot.redraw(false, false);
      return;
    }
    this.measure();
    this.plot.redraw(true, true);
    if (!this.isFollowing && this.cursorX() !== undefined) this.hovered();
  }

  resize(width: number, height: number): void {
    if (width <= 0 || height <= 0 || (width === this.plot.width && height === this.plot.height)) return;
    this.measureRoom(width);
    this.plot.setSize({ width, height });
  }

  /** Show the cross-hair at x because another chart has it there. */
  follow(x: number | undefined): void {
    this.isFollowing = true;
    const isInside = x !== undefined && x >= this.x[0] && x <= this.x[1];
    this.plot.setCursor({ left: isInside ? this.plot.valToPos(x, "x") : -10, top: isInside ? 0 : -10 }, false);
  }

  /** What the chart says about x. */
  at(x: number): Row[] {
    return rowsAt(this.view.lines, this.smoothed, x, this.slack());
  }

  /** Move the cross-hair by keys: to the next point of the first line. */
  step(by: number): void {
    const xs = this.view.lines[0]?.xs ?? [];
    const now = this.cursorX() ?? (by > 0 ? this.x[0] : this.x[1]);
    const next = by > 0 ? xs.find((x) => x > now + this.slack() / 50) : xs.findLast((x) => x < now - this.slack() / 50);
    if (next === undefined || next < this.x[0] || next > this.x[1]) return;
    this.isFollowing = false;
    this.plot.setCursor({ left: this.plot.valToPos(next, "x"), top: 10 }, true);
  }

  /** Do what a click at the cross-hair does. */
  hold(): void {
    const hover = this.hover();
    if (hover) this.hearers.onPick(hover);
  }

  get canvas(): HTMLCanvasElement {
    return this.plot.ctx.canvas;
  }

  destroy(): void {
    this.plot.destroy();
  }

  private cursorX(): number | undefined {
    const left = this.plot.cursor.left ?? -1;
    return left < 0 ? undefined : this.plot.posToVal(left, "x");
  }

  /** How far from a point the mouse may be, in units of x. */
  private slack(): number {
    return ((this.x[1] - this.x[0]) / Math.max(1, this.plot.over.clientWidth)) * near;
  }

  private measure(): void {
    const { lines, zoom, isLog, smoothing } = this.view;
    this.smoothed = new Map(smoothing > 0 ? lines.map((line) => [line.id, smooth(line.ys, smoothing)]) : []);
    this.x = zoom ?? extentX(lines) ?? [0, 1];
    const y = padded(extentY(lines, this.x, isLog) ?? (isLog ? [0.1, 1] : [0, 1]), isLog);
    this.y = this.view.amount.isFromZero && !isLog && y[1] > 0 ? [0, y[1]] : y;
  }

  private measureRoom(width: number): void {
    const named = this.view.lines.filter((line) => !line.isFaint);
    const context = document.createElement("canvas").getContext("2d");
    if (width < 420 || !named.length || !context) {
      this.room = 0;
      return;
    }
    context.font = font;
    this.room = Math.min(96, Math.max(...named.map((line) => context.measureText(line.name).width)) + 10);
  }

  private clicked(event: MouseEvent): void {
    const hover = this.hover();
    if (hover && Math.abs(event.clientX - this.downAt) < 4) this.hearers.onPick(hover);
  }

  private hover(): Hover | undefined {
    const x = this.cursorX();
    if (x === undefined) return undefined;
    const { left = 0, top = 0 } = this.plot.cursor;
    const rows = this.at(x);
    const found = lineNear(rows, top, (value) => this.plot.valToPos(value, "y"), near);
    return { x, left: left + this.plot.over.offsetLeft, top: top + this.plot.over.offsetTop, width: this.plot.width, rows, near: found };
  }

  private hovered(): void {
    this.hearers.onHover(this.hover());
  }

  private selected(plot: uPlot): void {
    const { left, width } = plot.select;
    if (width <= 0) return;
    const span = dragged(plot.posToVal(left, "x"), plot.posToVal(left + width, "x"), width);
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    if (span) this.hearers.onZoom(span);
  }

  private draw(plot: uPlot): void {
    const ratio = uPlot.pxRatio;
    const { left, top, width, height } = plot.bbox;
    const area: Area = { left, top, width, height, x: this.x, y: this.y, ratio };
    const { palette, lines, isLog, lit } = this.view;
    const scaled = { ...palette, font: font.replace("11", String(11 * ratio)) };
    const scene: Scene = { lines, smoothed: this.smoothed, isLog, lit, palette: scaled, isZoomed: this.view.zoom !== undefined };
    paint(plot.ctx, scene, area, this.room);
  }

  private ticks(size: number, isX: boolean): number[] {
    const most = Math.max(2, Math.min(6, Math.floor(size / (isX ? 80 : 34))));
    if (!isX) return this.view.isLog ? logTicks(this.y, most) : this.view.amount.ticks(this.y, most);
    return this.view.place === "time" ? timeTicks(this.x, most) : linearTicks(this.x, most, this.view.place === "batch");
  }

  private options({ width, height }: { width: number; height: number }): uPlot.Options {
    this.measureRoom(width);
    const stroke = (name: keyof Palette) => () => this.view.palette[name];
    const widest = (texts: string[] | null) => Math.max(44, 14 + 6.5 * Math.max(0, ...(texts ?? []).map((text) => text.length)));
    return {
      width,
      height,
      padding: [8, () => this.room || 10, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        points: { show: false },
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => this.reset() },
      },
      scales: { x: { time: false, range: () => [...this.x] as [number, number] }, y: { distr: this.view.isLog ? 3 : 1, range: () => [...this.y] as [number, number] } },
      series: [{}, { paths: () => null, points: { show: false } }],
      axes: [
        {
          font,
          size: 24,
          gap: 6,
          stroke: stroke("muted"),
          grid: { show: false },
          ticks: { show: false },
          border: { show: true, width: 1, stroke: stroke("line") },
          splits: (plot) => this.ticks(plot.width, true),
          values: (_, values) => values.map(this.view.place === "time" ? timeText : tickText),
        },
        {
          font,
          size: (_, texts) => widest(texts),
          gap: 6,
          stroke: stroke("muted"),
          grid: { width: 1, stroke: stroke("line") },
          ticks: { show: false },
          splits: (plot) => this.ticks(plot.height, false),
          values: (_, values) => values.map(this.view.amount.mark),
          filter: (_, values) => values,
        },
      ],
      hooks: {
        draw: [(plot) => this.draw(plot)],
        setSelect: [(plot) => this.selected(plot)],
        setCursor: [() => this.moved()],
      },
    };
  }

  private moved(): void {
    this.isFollowing = false;
    this.hovered();
  }

  private reset(): null {
    this.hearers.onZoom(undefined);
    return null;
  }
}
