export { useAbout, useReadOnly } from "./about";
export type { Answer, Input } from "./client";
export { api, url } from "./client";
export { ApiError, Unreachable, explain } from "./error";
export type { Change } from "./invalidate";
export { useChange, useLive } from "./live";
export { queries, useGet } from "./query";
export type { components, paths } from "./types.gen";
