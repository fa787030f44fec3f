// Which server this is, and whether it lets anything be changed.
import type { UseQueryResult } from "@tanstack/react-query";
import type { Answer } from "./client";
import { useGet } from "./query";

export function useAbout(): UseQueryResult<Answer<"/api/v1/about">> {
  return useGet(["about"], "/api/v1/about", {});
}

/** Why nothing can be changed from this page, to disable buttons with; empty when it can. */
export function useReadOnly(): string {
  return useAbout().data?.is_read_only ? "This page was started with --read-only." : "";
}
