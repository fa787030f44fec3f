export { bytes } from "./bytes";
export type { Numeric } from "./number";
export { count, exact, percent, short, toNumber } from "./number";
export { ago, duration, moment, nextTick, utc } from "./time";
export { listed, plural } from "./words";
