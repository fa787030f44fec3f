// What is around every page.
import type { ReactNode } from "react";
import { Confirmations, Toasts } from "../parts";
import { Banner, Bar } from "./bar";
import "./frame.css";
import { Rail } from "./rail";
import { Shortcuts } from "./shortcuts";

export function Frame({ children }: { children: ReactNode }) {
  return (
    <div className="frame">
      <Rail />
      <div>
        <Bar />
        <Banner />
        <main id="main">{children}</main>
      </div>
      <Shortcuts />
      <Confirmations />
      <Toasts />
    </div>
  );
}

export type { Crumb } from "./crumbs";
export { useCrumbs } from "./crumbs";
export { ThingHeader } from "./header";
export { useKeys } from "./keys";
