// @vitest-environment jsdom
import { act } from "react";
import type { Root } from "react-dom/client";
import { createRoot } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { integers } from "./codecs";
import { Link } from "./link";
import { setQuery, useQueryState } from "./query";
import { here, navigate } from "./router";

vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
vi.stubGlobal("scrollTo", () => undefined);

const seen: number[][] = [];
let set: ReturnType<typeof useQueryState<number[]>>[1];

function Chosen() {
  const [ids, setIds] = useQueryState("ids", [], integers);
  set = setIds;
  seen.push(ids);
  return <Link to="/models">{ids.join("+")}</Link>;
}

let root: Root | undefined;

async function render(): Promise<HTMLElement> {
  const place = document.body.appendChild(document.createElement("div"));
  root = createRoot(place);
  await act(async () => root?.render(<Chosen />));
  return place;
}

beforeEach(() => {
  document.body.replaceChildren();
  navigate("/trials?ids=1,2&other=x");
});

afterEach(() => act(async () => root?.unmount()));

test("the address restores the state, and setting it keeps what others hold", async () => {
  const place = await render();
  expect(place.textContent).toBe("1+2");
  await act(async () => set((ids) => [...ids, 3]));
  expect([place.textContent, here().search]).toEqual(["1+2+3", "?ids=1%2C2%2C3&other=x"]);
  await act(async () => set([]));
  expect(here().search).toBe("?other=x");
});

test("the same address gives the same value, so that effects do not run for nothing", async () => {
  await render();
  seen.length = 0;
  await act(async () => setQuery({ other: "y" }));
  await act(async () => setQuery({ other: "z" }));
  expect(seen[0]).toBe(seen.at(-1));
});

test("what was pushed is undone by the back button", async () => {
  const place = await render();
  await act(async () => set([9], { push: true }));
  expect(place.textContent).toBe("9");
  await act(async () => {
    window.history.back();
    await new Promise((done) => window.addEventListener("popstate", done, { once: true }));
  });
  expect(place.textContent).toBe("1+2");
});

test("a link moves within the page, and leaves a click with a modifier to the browser", async () => {
  const place = await render();
  const click = (init: MouseEventInit) => {
    const event = new MouseEvent("click", { bubbles: true, cancelable: true, ...init });
    place.querySelector("a")?.dispatchEvent(event);
    return event.defaultPrevented;
  };
  window.addEventListener("click", (event) => event.preventDefault(), { once: true }); // jsdom cannot leave a page
  click({ ctrlKey: true });
  expect(here().path).toBe("/trials");
  await act(async () => void click({}));
  expect(here().path).toBe("/models");
});
