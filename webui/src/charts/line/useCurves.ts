// Curves of trials from the server, as fine as the screen: the whole first, and when zoomed that range anew with its detail.
import { useMemo } from "react";
import type { QueryKey } from "@tanstack/react-query";
import { useGet } from "../../api";
import type { Envelope } from "../logic/envelopes";
import { isCoarse, stepsOf } from "../logic/envelopes";
import type { Place } from "../logic/lines";
import type { Span } from "../logic/ticks";

interface Asked {
  /** Of the query: `["trial", 7]` makes it live. */
  of: QueryKey;
  trials: readonly number[];
  /** As "group:name". */
  series: readonly string[];
  place: Place;
  zoom: Span | undefined;
  buckets?: number;
  isWanted?: boolean;
}

export function useCurves({ of, trials, series, place, zoom, buckets = 600, isWanted = true }: Asked) {
  const query = { trials: trials.join(","), series: [...series], buckets };
  const isAsked = isWanted && trials.length > 0 && series.length > 0;
  const key = [...of, "curves", query.trials, ...series, buckets];
  const whole = useGet(key, "/api/v1/curves", { query }, { enabled: isAsked });
  const curves = whole.data?.curves;
  const hasCurves = curves !== undefined;
  // Only when the zoom changes: as data comes in, buckets move, and the range must not move with them.
  const steps = useMemo(() => (zoom && curves && isCoarse(curves) ? stepsOf(curves, place, zoom) : undefined), [zoom, place, hasCurves]);
  const part = useGet([...key, steps?.first, steps?.last], "/api/v1/curves", { query: { ...query, ...steps } }, { enabled: isAsked && steps !== undefined });
  const isFine = steps !== undefined && part.data !== undefined && !part.isPlaceholderData;
  const shown: Envelope[] | undefined = isFine ? part.data.curves : curves;
  return { curves: shown, error: whole.error ?? part.error, isLoading: whole.isLoading, refetch: whole.refetch };
}
