// The line at the top: where you are, the search box, whether data is live, the theme; and a banner when it is not.
import { useEffect, useState } from "react";
import { useLive } from "../api";
import { duration } from "../format";
import { Icon } from "../parts";
import { Link } from "../route";
import { setTheme, useTheme } from "../style/theme";
import { useShownCrumbs } from "./crumbs";
import { Search } from "./search";

/** Seconds since a moment, once a second while `ticking`. */
function useSecondsSince(since: number, ticking: boolean): number {
  const [, tick] = useState(0);
  useEffect(() => {
    if (!ticking) return undefined;
    const timer = setInterval(() => tick((count) => count + 1), 1000);
    return () => clearInterval(timer);
  }, [since, ticking]);
  return Math.max(0, Math.floor((Date.now() - since) / 1000));
}

function LiveDot() {
  const { state, since } = useLive();
  const seconds = useSecondsSince(since, state === "reconnecting");
  // The first second of every visit is a connection being made: no cause for alarm.
  const word = state === "reconnecting" ? (seconds < 2 ? "connecting" : `reconnecting since ${duration(seconds)}`) : state;
  return (
    <span className={`live-dot ${state === "reconnecting" && seconds < 2 ? "paused" : state}`} role="status" aria-live="off">
      {word}
    </span>
  );
}

function ThemeToggle() {
  const { shown } = useTheme();
  const other = shown === "dark" ? "light" : "dark";
  return (
    <button type="button" className="plain" aria-label={`Use the ${other} theme`} title={`Use the ${other} theme`} onClick={() => setTheme(other)}>
      <Icon name={shown === "dark" ? "sun" : "moon"} />
    </button>
  );
}

export function Bar() {
  const crumbs = useShownCrumbs();
  return (
    <header className="bar">
      <nav aria-label="You are here" className="grow">
        <ol className="crumbs">
          {crumbs.map((crumb, place) => (
            <li key={`${place} ${crumb.label}`} className="clip">
              {crumb.to && place < crumbs.length - 1 ? (
                <Link to={crumb.to}>{crumb.label}</Link>
              ) : (
                <span aria-current={place === crumbs.length - 1 ? "page" : undefined}>{crumb.label}</span>
              )}
            </li>
          ))}
        </ol>
      </nav>
      <Search />
      <LiveDot />
      <ThemeToggle />
    </header>
  );
}

/** Said once for the whole page: the server or its database is away. It goes by itself when they are back. */
export function Banner() {
  const { state, since, store } = useLive();
  const seconds = useSecondsSince(since, state === "reconnecting");
  const gone = state === "reconnecting" && seconds >= 5;
  if (!gone && store.available) return null;
  return (
    <div className="banner" role="alert">
      <Icon name="warning" />
      {gone ? (
        <span>
          The server does not answer; what you see is from {duration(seconds)} ago. If it ended, start it again: <code>det ui</code>
        </span>
      ) : (
        <span>The database does not answer: {store.reason} Training goes on; the page heals by itself when it is back.</span>
      )}
    </div>
  );
}
