// The view of one table: in the address while it is on screen, remembered for this project when one comes back.
import { useCallback, useEffect, useMemo } from "react";
import { here, setQuery, useLocation } from "../../route";
import type { Kind, Scope } from "../types";
import { keepView, lastView, place } from "../view/saved";
import type { View } from "../view/view";
import { fromQuery, plain, toQuery, viewText } from "../view/view";

export interface Viewing {
  view: View;
  /** Where this table's views are remembered. */
  where: string;
  /** Change some of it. What the back button should undo is pushed; typing and resizing are not. */
  change: (patch: Partial<View>, how?: { push?: boolean }) => void;
  reset: () => void;
}

export function useView(kind: Kind, scope: Scope): Viewing {
  const { search } = useLocation();
  const where = place(kind, scope);
  const found = fromQuery(new URLSearchParams(search));
  const text = viewText(found ?? lastView(where) ?? plain);
  // By text: another key of the address (a tab, the selection) is not another view.
  const view = useMemo(() => fromQuery(new URLSearchParams(text)) ?? plain, [text]);

  useEffect(() => {
    // An address that was sent must show what its sender saw, so the view is always written out.
    if (!found) setQuery({ ...toQuery(view) });
    else keepView(where, text === viewText(plain) ? undefined : view);
  }, [text, where, !found]);

  const change = useCallback(
    (patch: Partial<View>, { push = true } = {}) => {
      const now = fromQuery(new URLSearchParams(here().search)) ?? lastView(where) ?? plain;
      setQuery({ ...toQuery({ ...now, ...patch }) }, { push });
    },
    [where],
  );
  const reset = useCallback(() => {
    keepView(where, undefined);
    setQuery({ ...toQuery(plain) }, { push: true });
  }, [where]);
  return { view, where, change, reset };
}
