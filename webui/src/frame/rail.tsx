// The rail of words on the left, a bar at the bottom of narrow windows.
import type { IconName } from "../parts";
import { Icon, Menu } from "../parts";
import { Link, match, navigate, useLocation } from "../route";
import type { PageName } from "../route";

interface Place {
  to: string;
  word: string;
  icon: IconName;
  pages: PageName[];
  /** On a telephone it is under "More". */
  spare?: boolean;
}

const places: Place[] = [
  { to: "/", word: "Home", icon: "home", pages: ["home"] },
  { to: "/experiments", word: "Experiments", icon: "experiments", pages: ["experiments", "experiment"] },
  { to: "/trials", word: "Runs", icon: "runs", pages: ["trials", "trial", "compare"] },
  { to: "/models", word: "Models", icon: "models", pages: ["models", "model"] },
  { to: "/queue", word: "Queue", icon: "queue", pages: ["queue"] },
  { to: "/projects", word: "Projects", icon: "projects", pages: ["projects", "project"], spare: true },
  { to: "/tasks", word: "TensorBoards", icon: "tasks", pages: ["tasks"], spare: true },
  { to: "/settings", word: "Settings", icon: "settings", pages: ["settings"], spare: true },
];

export function Rail() {
  const page = match(useLocation().path)?.page;
  return (
    <nav className="rail" aria-label="Pages">
      <Link className="brand" to="/">
        <img src="/icon.svg" alt="" />
        Resolute
      </Link>
      {places.map(({ to, word, icon, pages, spare }) => (
        <Link
          key={to}
          to={to}
          className={`${word === "Settings" ? "last" : ""} ${spare ? "spare" : ""}`}
          aria-current={page && pages.includes(page) ? "page" : undefined}
        >
          <Icon name={icon} />
          {word}
        </Link>
      ))}
      <div className="rail-more" data-current={places.some((place) => place.spare && page && place.pages.includes(page)) || undefined}>
        <Menu
          align="right up"
          className="plain"
          label={
            <>
              <Icon name="more" />
              More
            </>
          }
          items={places.filter((place) => place.spare).map(({ to, word }) => ({ label: word, onSelect: () => navigate(to) }))}
        />
      </div>
    </nav>
  );
}
