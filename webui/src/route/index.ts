export { Link } from "./link";
export { setQuery, useQueryState } from "./query";
export { address, here, navigate, useLocation } from "./router";
export type { PageName, PageProps, Params } from "./table";
export { match, routes } from "./table";
export * as codecs from "./codecs";
