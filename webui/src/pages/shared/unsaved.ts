// Warn before something typed is lost: when the tab is closed, and when a link leads away.
import { useEffect } from "react";
import { confirm } from "../../parts";
import { navigate } from "../../route";

function leaving(event: MouseEvent): string | undefined {
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target === "_blank" || link.download) return undefined;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return undefined;
  return link.origin === window.location.origin ? link.pathname + link.search : undefined;
}

async function ask(to: string, lost: string): Promise<void> {
  if (await confirm({ title: "Leave without saving?", lost, action: "Leave" })) navigate(to);
}

/** While `isDirty`, ask before the page is left; `lost` says what would be lost. */
export function useUnsaved(isDirty: boolean, lost: string): void {
  useEffect(() => {
    if (!isDirty) return undefined;
    const closing = (event: BeforeUnloadEvent) => event.preventDefault();
    const clicked = (event: MouseEvent) => {
      const to = leaving(event);
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      void ask(to, lost);
    };
    window.addEventListener("beforeunload", closing);
    document.addEventListener("click", clicked, true);
    return () => {
      window.removeEventListener("beforeunload", closing);
      document.removeEventListener("click", clicked, true);
    };
  }, [isDirty, lost]);
}
