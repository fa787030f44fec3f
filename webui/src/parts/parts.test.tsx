// @vitest-environment jsdom
import { act as settle } from "react";
import { createRoot } from "react-dom/client";
import { expect, test, vi } from "vitest";
import { useKeys } from "../frame/keys";
import { news } from "./act";
import { Markdown, safeAddress } from "./markdown";
import { State, isMoving, isOver, stateColour } from "./state";

vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);

async function render(element: React.ReactNode): Promise<HTMLElement> {
  const place = document.body.appendChild(document.createElement("div"));
  await settle(async () => createRoot(place).render(element));
  return place;
}

test("every state has a colour, and its word is always there", async () => {
  const states = ["ACTIVE", "PAUSED", "COMPLETED", "CANCELED", "ERROR", "STOPPING_ERROR", "STOPPING_COMPLETED", "NEW_ONE"];
  expect(states.map(stateColour)).toEqual(["active", "paused", "completed", "ended", "error", "error", "completed", "ended"]);
  expect((await render(<State state="STOPPING_CANCELED" />)).textContent).toBe("STOPPING CANCELED");
  expect([isMoving("STOPPING_CANCELED"), isMoving("PAUSED"), isOver("CANCELED"), isOver("STOPPING_ERROR")]).toEqual([true, false, true, false]);
});

test("news of several things say how many were done and why others were not", () => {
  const outcome = (id: number, is_done: boolean) => ({ id, is_done, said: `Experiment ${id} said.` });
  expect(news({ said: "Paused." })).toEqual({ good: "Paused.", bad: "" });
  expect(news({ outcomes: [outcome(1, true)] })).toEqual({ good: "Experiment 1 said.", bad: "" });
  const many = news({ outcomes: [outcome(1, true), outcome(2, true), ...[3, 4, 5, 6].map((id) => outcome(id, false))] });
  expect(many.good).toBe("Done for 2 of 6.");
  expect(many.bad).toBe("Experiment 3 said. Experiment 4 said. Experiment 5 said. And 1 more.");
});

test("links in notes lead to the web or to mail, nowhere else", () => {
  const addresses = ["https://a.example", "mailto:a@b", "javascript:alert(1)", "data:text/html,x", " javascript:x", "//evil", "/trials/1"];
  expect(addresses.map(safeAddress)).toEqual(["https://a.example", "mailto:a@b", "", "", "", "", ""]);
});

test("keys work on the page, not in a field, not with a modifier, not below a dialog", async () => {
  const pressed = vi.fn();
  function Page() {
    useKeys({ j: ["Next row", pressed] });
    return <input />;
  }
  const place = await render(<Page />);
  const press = (target: Element, init: KeyboardEventInit = {}) =>
    target.dispatchEvent(new KeyboardEvent("keydown", { key: "j", bubbles: true, ...init }));
  press(document.body);
  expect(pressed).toHaveBeenCalledTimes(1);
  press(place.querySelector("input") as Element);
  press(document.body, { ctrlKey: true });
  const dialog = document.body.appendChild(document.createElement("dialog"));
  dialog.setAttribute("open", "");
  press(document.body);
  expect(pressed).toHaveBeenCalledTimes(1);
  dialog.remove();
});

test("HTML in notes is shown as text; pictures are not fetched", async () => {
  const text = "<script>alert(1)</script>\n\n<img src=x onerror=alert(1)>\n\n![pic](https://a.example/x.png) [go](javascript:alert(1))";
  const place = await render(<Markdown text={text} />);
  await settle(async () => void (await import("react-markdown"))); // it is loaded only when a note is shown
  expect(place.textContent).toContain("[picture: pic]");
  expect(place.querySelector("script, img, a")).toBeNull();
  expect(place.textContent).toContain("<script>alert(1)</script>");
});
