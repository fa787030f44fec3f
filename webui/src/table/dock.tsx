// What rises from below the table while rows are selected: a bar with what can be done with them and, from two on, the
// panel that compares them. Its height and whether it is folded are remembered.
import type { KeyboardEvent, PointerEvent } from "react";
import { Suspense, lazy, useEffect, useRef, useState } from "react";
import { Icon, Skeleton } from "../parts";
import { address, codecs, useQueryState, Link } from "../route";
import { remember, remembered } from "../style/remembered";
import { BulkBar } from "./bulk/bar";
import type { Bulk } from "./bulk/usebulk";
import { most, tabs } from "../compare/tabs";
import type { CompareTab } from "../compare/tabs";
import type { Selecting } from "./state/useselection";
import type { Kind, TableRow } from "./types";

const Compare = lazy(() => import("../compare/compare").then(({ Compare: shown }) => ({ default: shown })));

interface DockProps {
  kind: Kind;
  selection: Selecting;
  chosen: readonly TableRow[];
  bulk: Bulk;
  isNarrow: boolean;
  /** Grows when the key for comparing is pressed. */
  raised: number;
}

const least = 140;
const step = 40;

export function Dock({ kind, selection, chosen, bulk, isNarrow, raised }: DockProps) {
  const [height, setHeight] = useState(() => remembered<number>("compare.height") ?? Math.round(window.innerHeight * 0.46));
  const [isFolded, setFolded] = useState(() => remembered<boolean>("compare.folded") ?? false);
  const [tab, setTab] = useQueryState<CompareTab>("compare", "curves", codecs.oneOf("curves", "differences", "parallel", "details"));
  const isMany = selection.ids.length > 1;
  const isOpen = isMany && !isFolded;
  const fold = (next: boolean) => {
    setFolded(next);
    remember("compare.folded", next);
  };
  const first = useRef(raised);
  useEffect(() => {
    if (raised !== first.current) fold(!isFolded);
    first.current = raised;
  }, [raised]);
  const ids = selection.ids.slice(0, most);
  return (
    <section className="dock" aria-label="Selected" style={isOpen ? { height: `min(${height}px, 75%)` } : undefined}>
      {isOpen && <Sash height={height} onHeight={setHeight} />}
      <div className="dock-bar">
        <BulkBar kind={kind} ids={selection.ids} chosen={chosen} bulk={bulk} isNarrow={isNarrow} onClear={selection.clear} />
        {isOpen && <DockTabs tab={tab} onTab={setTab} />}
        {isMany && (
          <span className="dock-end">
            {isOpen && (
              <Link className="button plain" to={address("/compare", { [kind]: ids.join(","), compare: tab })} title="Compare on a page of its own">
                <Icon name="expand" size={14} />
                <span className="visually-hidden">Compare on a page of its own</span>
              </Link>
            )}
            <button type="button" aria-expanded={isOpen} onClick={() => fold(!isFolded)}>
              <Icon name={isOpen ? "down" : "up"} size={14} />
              {isNarrow ? <span className="visually-hidden">Compare</span> : "Compare"}
            </button>
          </span>
        )}
      </div>
      {isOpen && (
        <div className="dock-body">
          <Suspense fallback={<Skeleton />}>
            <Compare {...(kind === "trials" ? { trials: ids } : { experiments: ids })} tab={tab} total={selection.ids.length} />
          </Suspense>
        </div>
      )}
    </section>
  );
}

function DockTabs({ tab, onTab }: { tab: CompareTab; onTab: (tab: CompareTab) => void }) {
  const keys = (event: KeyboardEvent<HTMLElement>) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const place = (tabs.findIndex(({ key }) => key === tab) + by + tabs.length) % tabs.length;
    onTab(tabs[place]!.key);
    (event.currentTarget.children[place] as HTMLElement | undefined)?.focus();
  };
  return (
    <div className="tabs" role="tablist" aria-label="Compare" onKeyDown={keys}>
      {tabs.map(({ key, label }) => (
        <button key={key} type="button" role="tab" aria-selected={key === tab} tabIndex={key === tab ? 0 : -1} onClick={() => onTab(key)}>
          {label}
        </button>
      ))}
    </div>
  );
}

/** The upper edge, to drag. */
function Sash({ height, onHeight }: { height: number; onHeight: (height: number) => void }) {
  const set = (next: number) => {
    const kept = Math.round(Math.max(least, Math.min(window.innerHeight * 0.75, next)));
    onHeight(kept);
    remember("compare.height", kept);
  };
  const drag = (event: PointerEvent<HTMLDivElement>) => {
    const { currentTarget: sash, pointerId, clientY } = event;
    sash.setPointerCapture(pointerId);
    const move = (next: globalThis.PointerEvent) => set(height + clientY - next.clientY);
    sash.addEventListener("pointermove", move);
    sash.addEventListener("lostpointercapture", () => sash.removeEventListener("pointermove", move), { once: true });
  };
  const keys = (event: KeyboardEvent) => {
    const by = { ArrowUp: step, ArrowDown: -step }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    set(height + by);
  };
  return (
    <div
      className="sash"
      role="separator"
      aria-orientation="horizontal"
      aria-label="Height of the panel"
      aria-valuenow={height}
      aria-valuemin={least}
      aria-valuemax={Math.round(window.innerHeight * 0.75)}
      tabIndex={0}
      onPointerDown={drag}
      onKeyDown={keys}
    />
  );
}
