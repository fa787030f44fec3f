// What the numbers of a vertical axis are: how they read, and where their round numbers lie.
import { bytes, short } from "../../format";
import type { Span } from "./ticks";
import { linearTicks, tickText } from "./ticks";

export interface Amount {
  ticks: (span: Span, most: number) => number[];
  /** On the axis. */
  mark: (value: number) => string;
  /** In tooltips and legends. */
  text: (value: number) => string;
  /** The axis begins at zero: half as high is half as much. */
  isFromZero?: boolean;
}

/** Round in powers of 1024, as sizes are written. */
export function byteTicks(span: Span, most = 6): number[] {
  const size = Math.max(Math.abs(span[0]), Math.abs(span[1]), 1);
  const unit = 1024 ** Math.floor(Math.log(size) / Math.log(1024));
  return linearTicks([span[0] / unit, span[1] / unit], most).map((tick) => tick * unit);
}

const size = (value: number): string => (value < 0 ? `−${bytes(-value)}` : bytes(Math.round(value))).replace(".0 ", " ");

const plain: Amount = { ticks: linearTicks, mark: tickText, text: (value) => short(value) };

export const amounts = {
  plain,
  percent: { ticks: linearTicks, mark: (value) => `${tickText(value)} %`, text: (value) => `${short(value, 3)} %`, isFromZero: true },
  bytes: { ticks: byteTicks, mark: size, text: size },
  bytesPerSecond: { ticks: byteTicks, mark: (value) => `${size(value)}/s`, text: (value) => `${size(value)}/s`, isFromZero: true },
  perSecond: { ticks: linearTicks, mark: (value) => `${tickText(value)}/s`, text: (value) => `${short(value)}/s`, isFromZero: true },
} satisfies Record<string, Amount>;
