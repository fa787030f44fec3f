// The lines in which a search finds something.
import { explain, useGet } from "../../../api";

interface Wanted {
  search: string;
  isRegex: boolean;
  level: string;
  rank: number | undefined;
  /** Whether lines may still come. */
  isLive: boolean;
}

export function useMatches(trialId: number, { search, isRegex, level, rank, isLive }: Wanted) {
  const query = {
    ...(isRegex ? { regex: search } : { text: search }),
    ...(level && { level }),
    ...(rank !== undefined && { rank: [rank] }),
  };
  // Not under the key of the log: a search through all lines is too much to ask for with each new one.
  const { data, error } = useGet(
    ["log-matches", trialId, query],
    "/api/v1/trials/{trial_id}/logs/matches",
    { path: { trial_id: trialId }, query },
    { enabled: search !== "", refetchInterval: isLive ? 5000 : false },
  );
  if (search === "") return undefined;
  return { ids: error ? [] : (data?.ids ?? []), isAll: data?.is_all ?? true, error: error ? explain(error) : "" };
}
