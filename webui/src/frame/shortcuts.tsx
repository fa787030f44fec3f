// The list of keys, under `?`.
import { useState } from "react";
import { Dialog } from "../parts";
import { currentKeys, useKeys } from "./keys";

export function Shortcuts() {
  const [open, setOpen] = useState(false);
  useKeys({ "?": ["Show this list", () => setOpen(true)] });
  if (!open) return null;
  return (
    <Dialog title="Keys" onClose={() => setOpen(false)}>
      <KeyList />
    </Dialog>
  );
}

export function KeyList() {
  return (
    <dl className="facts">
      {currentKeys().map(([key, what]) => [
        <dt key={key}>
          <kbd>{key}</kbd>
        </dt>,
        <dd key={`${key} what`}>{what}</dd>,
      ])}
    </dl>
  );
}
