// What this browser remembers: theme, density; and the keys, and which server this is.
import { useAbout } from "../../api";
import { useCrumbs } from "../../frame";
import { KeyList } from "../../frame/shortcuts";
import type { Density, Theme } from "../../style/theme";
import { setDensity, setTheme, useDensity, useTheme } from "../../style/theme";
import "./settings.css";

interface ChoiceProps<T extends string> {
  legend: string;
  chosen: T;
  choose: (value: T) => void;
  words: Record<T, string>;
}

function Choice<T extends string>({ legend, chosen, choose, words }: ChoiceProps<T>) {
  return (
    <fieldset className="choice">
      <legend>{legend}</legend>
      {(Object.entries(words) as [T, string][]).map(([value, word]) => (
        <label key={value}>
          <input type="radio" name={legend} checked={chosen === value} onChange={() => choose(value)} /> {word}
        </label>
      ))}
    </fieldset>
  );
}

const listKeys: [string, string][] = [
  ["j", "Next row"],
  ["k", "Previous row"],
  ["x", "Select the row"],
  ["Enter", "Open the row"],
  ["c", "Compare what is selected"],
];

export default function Settings() {
  useCrumbs({ label: "Settings" });
  const about = useAbout().data;
  return (
    <div className="page settings">
      <h1>Settings</h1>
      <section>
        <Choice<Theme>
          legend="Theme"
          chosen={useTheme().choice}
          choose={setTheme}
          words={{ system: "As the system has it", light: "Light", dark: "Dark" }}
        />
        <Choice<Density> legend="Rows of tables" chosen={useDensity()} choose={setDensity} words={{ normal: "Normal, 32 pixels", dense: "Dense, 28 pixels" }} />
        <p className="muted">Kept in this browser.</p>
      </section>
      <section>
        <header>
          <h2>Keys</h2>
        </header>
        <p className="muted">Everywhere</p>
        <KeyList />
        <p className="muted settings-apart">In lists</p>
        <dl className="facts">
          {listKeys.map(([key, what]) => [
            <dt key={key}>
              <kbd>{key}</kbd>
            </dt>,
            <dd key={what}>{what}</dd>,
          ])}
        </dl>
      </section>
      {about && (
        <section>
          <header>
            <h2>This server</h2>
          </header>
          <dl className="facts">
            <dt>Version</dt>
            <dd>{about.version}</dd>
            <dt>Store</dt>
            <dd className="mono">{about.store}</dd>
            <dt>You</dt>
            <dd>{about.user}</dd>
            <dt>Changes</dt>
            <dd>{about.is_read_only ? "none: started with --read-only" : "allowed"}</dd>
          </dl>
        </section>
      )}
    </div>
  );
}
