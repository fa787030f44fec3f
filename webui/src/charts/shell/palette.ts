// The colours of the theme shown now, for canvases, which cannot read CSS.
import { useMemo } from "react";
import { token, useTheme } from "../../style/theme";

const names = ["bg", "surface", "raised", "text", "muted", "faint", "line", "accent", "error"] as const;
export type Colors = Record<(typeof names)[number], string> & { theme: "light" | "dark" };

/** Read anew when the theme changes. */
export function useColors(): Colors {
  const { shown } = useTheme();
  return useMemo(() => ({ ...(Object.fromEntries(names.map((name) => [name, token(name)])) as Colors), theme: shown }), [shown]);
}
