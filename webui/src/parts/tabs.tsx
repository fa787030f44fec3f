// Tabs that are part of the address: each is a link, so it can be opened in another window and sent to somebody.
import type { KeyboardEvent } from "react";
import { useEffect, useRef } from "react";
import { Link, navigate } from "../route";

export interface Tab {
  /** The word in the path. */
  key: string;
  label: string;
}

interface TabsProps {
  tabs: Tab[];
  current: string;
  /** The path of a tab: `(key) => \`/trials/7/${key}\``. */
  to: (key: string) => string;
  label: string;
}

export function Tabs({ tabs, current, to, label }: TabsProps) {
  const list = useRef<HTMLElement>(null);
  // On a telephone the tabs scroll sideways. Not scrollIntoView: it would move the page too.
  useEffect(() => {
    const chosen = list.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (!list.current || !chosen) return;
    const { left, right } = chosen.getBoundingClientRect();
    const frame = list.current.getBoundingClientRect();
    if (left < frame.left || right > frame.right) list.current.scrollLeft += left - frame.left - 24;
  }, [current]);
  const keys = (event: KeyboardEvent<HTMLElement>) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const place = tabs.findIndex((tab) => tab.key === current);
    const next = tabs[(place + step + tabs.length) % tabs.length];
    if (!next) return;
    event.preventDefault();
    navigate(to(next.key));
    (event.currentTarget.children[tabs.indexOf(next)] as HTMLElement | undefined)?.focus();
  };
  return (
    <nav ref={list} className="tabs" role="tablist" aria-label={label} onKeyDown={keys}>
      {tabs.map((tab) => (
        <Link key={tab.key} to={to(tab.key)} role="tab" aria-selected={tab.key === current} tabIndex={tab.key === current ? 0 : -1}>
          {tab.label}
        </Link>
      ))}
    </nav>
  );
}
