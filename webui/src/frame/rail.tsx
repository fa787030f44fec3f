// The rail of words on the left, a bar at the bottom of narrow windows.
import type { IconName } from "../parts";
import { Icon } from "../parts";
import { Link, match, useLocation } from "../route";
import type { PageName } from "../route";

const places: { to: string; word: string; icon: IconName; pages: PageName[] }[] = [
  { to: "/", word: "Home", icon: "home", pages: ["home"] },
  { to: "/experiments", word: "Experiments", icon: "experiments", pages: ["experiments", "experiment"] },
  { to: "/trials", word: "Runs", icon: "runs", pages: ["trials", "trial", "compare"] },
  { to: "/models", word: "Models", icon: "models", pages: ["models", "model"] },
  { to: "/queue", word: "Queue", icon: "queue", pages: ["queue"] },
  { to: "/projects", word: "Projects", icon: "projects", pages: ["projects", "project"] },
  { to: "/tasks", word: "TensorBoards", icon: "tasks", pages: ["tasks"] },
  { to: "/settings", word: "Settings", icon: "settings", pages: ["settings"] },
];

export function Rail() {
  const page = match(useLocation().path)?.page;
  return (
    <nav className="rail" aria-label="Pages">
      <Link className="brand" to="/">
        <img src="/icon.svg" alt="" />
        Resolute
      </Link>
      {places.map(({ to, word, icon, pages }) => (
        <Link
          key={to}
          to={to}
          className={word === "Settings" ? "last" : ""}
          aria-current={page && pages.includes(page) ? "page" : undefined}
        >
          <Icon name={icon} />
          {word}
        </Link>
      ))}
    </nav>
  );
}
