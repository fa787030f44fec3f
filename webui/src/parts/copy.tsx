// Things to take away: a button that copies, and a command to type.
import { useState } from "react";
import { Icon } from "./icons";

export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false; // Refused, or a page opened over plain http from another machine.
  }
}

export function Copy({ text, label = "Copy" }: { text: string; label?: string }) {
  const [said, setSaid] = useState("");
  const copy = async () => {
    setSaid((await copyText(text)) ? "Copied" : "Select and copy by hand");
    setTimeout(() => setSaid(""), 2000);
  };
  return (
    <button type="button" className="plain copy" onClick={() => void copy()} aria-label={label} title={label}>
      {said === "Copied" ? <Icon name="check" /> : <Icon name="copy" />}
      <span role="status" className={said && said !== "Copied" ? "" : "visually-hidden"}>
        {said}
      </span>
    </button>
  );
}

/** A line (or a block) of code to type elsewhere. */
export function Command({ children, block = false }: { children: string; block?: boolean }) {
  return (
    <span className={block ? "command block" : "command"}>
      <code>{children}</code>
      <Copy text={children} label={`Copy: ${children.split("\n", 1)[0]}`} />
    </span>
  );
}
