// The colours of the theme shown now, for canvases, which cannot read CSS.
import { useMemo } from "react";
import { token, useTheme } from "../../style/theme";

const names = ["bg", "surface", "raised", "text", "muted", "faint", "line", "accent", "error"] as const;
/** `best` marks the best of many. */
export type Colors = Record<(typeof names)[number] | "best", string> & { theme: "light" | "dark" };

/** Read anew when the theme changes. */
export function useColors(): Colors {
  const { shown } = useTheme();
  return useMemo(() => ({ ...(Object.fromEntries(names.map((name) => [name, token(name)])) as Colors), best: token("series-2"), theme: shown }), [shown]);
}
