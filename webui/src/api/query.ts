// How the page asks and what it keeps. Freshness comes from the stream of changes, so nothing is asked again for other
// reasons, and what was shown stays until its successor is here: nothing flickers while live.
import type { QueryKey, UseQueryOptions, UseQueryResult } from "@tanstack/react-query";
import { QueryClient, keepPreviousData, useQuery } from "@tanstack/react-query";
import type { Answer, Input } from "./client";
import { api } from "./client";
import { ApiError } from "./error";
import type { paths } from "./types.gen";

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 60_000,
      gcTime: 5 * 60_000,
      refetchOnWindowFocus: false,
      refetchOnReconnect: false,
      networkMode: "always",
      // A refusal stays a refusal; anything else may be a server that is just starting.
      retry: (count, error) => count < 2 && !(error instanceof ApiError && error.status < 500),
      placeholderData: keepPreviousData,
    },
    mutations: { networkMode: "always" },
  },
});

type Got = { [P in keyof paths]: paths[P] extends { get: { responses: unknown } } ? P : never }[keyof paths] & string;
type Extra<T> = Omit<UseQueryOptions<T>, "queryKey" | "queryFn">;

/** Ask by GET and stay fresh: `useGet(["experiment", id], "/api/v1/experiments/{id}", { path: { id } })`. */
export function useGet<P extends Got>(
  key: QueryKey,
  path: P,
  input: Omit<Input<P>, "signal">,
  extra: Extra<Answer<P>> = {},
): UseQueryResult<Answer<P>> {
  const ask = api.get as (path: string, input: unknown) => Promise<Answer<P>>;
  return useQuery<Answer<P>>({ queryKey: key, queryFn: ({ signal }) => ask(path, { ...input, signal }), ...extra });
}
