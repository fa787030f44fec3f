// @vitest-environment jsdom
import { beforeEach, expect, test } from "vitest";
import { arranged } from "../state/usecolumns";
import type { Column } from "../types";
import { found, inWindow, moved, placed, possible, shown } from "./columns";
import { forgetView, keepView, lastView, place, saveView, savedViews } from "./saved";
import { clicked, sorted, usual } from "./sort";
import type { View } from "./view";
import { fromQuery, parseView, plain, viewText } from "./view";

const column = (key: string, type: Column["type"] = "number", is_shown = true): Column => ({
  key,
  title: key.split(".").at(-1)!,
  section: key.split(".")[0] as Column["section"],
  type,
  operators: ["is"],
  is_shown,
});
const lr = column("hparams.lr");
const loss = column("metrics.validation.loss.min");
const start = column("run.start_time", "time");

const full: View = {
  columns: ["run.name", "hparams.a,b", "metrics.validation.loss.min"],
  widths: { "run.name": 300, "hparams.a,b": 90 },
  sort: ["-run.state", "hparams.a,b"],
  filter: { join: "any", items: [{ column: "hparams.lr", operator: "<", value: 0.01 }, { column: "run.state", operator: "is", value: "ACTIVE" }] },
  search: "res net & more",
  group: "run.state",
  archived: true,
  heat: ["*"],
  dense: true,
};

beforeEach(() => localStorage.clear());

test("a view goes into the address and comes back exactly", () => {
  expect(parseView(viewText(full))).toEqual(full);
  expect(parseView(viewText(plain))).toEqual(plain);
  expect(viewText(plain)).toBe("sort=-run.id");
});

test("an address without a view is told from one with the plain view", () => {
  expect(fromQuery(new URLSearchParams("tab=trials"))).toBeUndefined();
  expect(fromQuery(new URLSearchParams("q=x"))).toEqual({ ...plain, search: "x" });
  expect(fromQuery(new URLSearchParams("f=nonsense&w=a:b,c:9999999&cols=&sort="))).toEqual({ ...plain, columns: [], widths: { c: 2000 } });
});

test("views are kept by name for each table of each project, and a broken memory is none", () => {
  const where = place("trials", { projectId: 3 });
  expect([where, place("experiments", {}), place("trials", { experimentId: 9 })]).toEqual(["trials.project-3", "experiments.all", "trials.experiment"]);
  saveView(where, "mine", plain);
  saveView(where, "other", full);
  saveView(where, "mine", full);
  expect(savedViews(where).map(({ name, text }) => [name, parseView(text)])).toEqual([["mine", full], ["other", full]]);
  expect(forgetView(where, "mine").map(({ name }) => name)).toEqual(["other"]);
  expect(savedViews(place("trials", {}))).toEqual([]);
  localStorage.setItem(`resolute.views.${where}`, '[{"name":1},null,{"name":"x","text":"nothing=1"}]');
  expect(savedViews(where)).toEqual([]);
});

test("the last view is remembered without its search", () => {
  keepView("trials.all", full);
  expect(lastView("trials.all")).toEqual({ ...full, search: "" });
  keepView("trials.all", undefined);
  expect(lastView("trials.all")).toBeUndefined();
});

test("a click sorts one way, then the other, then as usual; new things come first", () => {
  let sort = clicked(usual, lr, false);
  expect(sort).toEqual(["hparams.lr"]);
  sort = clicked(sort, lr, false);
  expect(sort).toEqual(["-hparams.lr"]);
  expect(clicked(sort, lr, false)).toEqual(usual);
  expect(clicked(sort, start, false)).toEqual(["-run.start_time"]);
  expect(clicked(["-run.id"], column("run.id"), false)).toEqual(["run.id"]);
  expect(clicked(["run.id"], column("run.id"), false)).toEqual(["-run.id"]);
});

test("a click with shift adds a column to the order, turns it, takes it out", () => {
  let sort = clicked(["hparams.lr"], loss, true);
  expect(sort).toEqual(["hparams.lr", loss.key]);
  sort = clicked(sort, lr, true);
  expect(sort).toEqual(["-hparams.lr", loss.key]);
  sort = clicked(sort, lr, true);
  expect(sort).toEqual([loss.key]);
  expect(sorted(["-a", "b"], "b")).toEqual({ place: 2, direction: "ascending" });
  expect(sorted(["-a", "b"], "c")).toBeUndefined();
  const eight = [..."abcdefgh"];
  expect(clicked(eight, lr, true)).toEqual([...eight.slice(1), "hparams.lr"]);
});

test("columns that are gone are not shown, and the order is the person's", () => {
  const all = [column("run.name", "text"), lr, loss, column("metadata.x", "text", false)];
  expect(shown(all, plain).map(({ key }) => key)).toEqual(["run.name", "hparams.lr", loss.key]);
  expect(shown(all, { columns: ["metadata.x", "hparams.gone", "run.name"] }).map(({ key }) => key)).toEqual(["metadata.x", "run.name"]);
});

test("a phone shows state and best value beside the name", () => {
  const all = ["run.name", "run.id", "run.best_metric", "run.state", "hparams.lr"].map((key) => column(key));
  expect(shown(all, plain, true).map(({ key }) => key)).toEqual(["run.name", "run.state", "run.best_metric", "run.id", "hparams.lr"]);
  expect(shown(all, { columns: ["run.id", "run.name"] }, true).map(({ key }) => key)).toEqual(["run.id", "run.name"]);
});

test("columns are moved, placed one after the other, and only those in sight are drawn", () => {
  expect(moved(["a", "b", "c"], "a", 1)).toEqual(["b", "a", "c"]);
  expect(moved(["a", "b", "c"], "c", -1)).toEqual(["c", "a", "b"]);
  expect(moved(["a", "b", "c"], "a", 9)).toEqual(["b", "c", "a"]);
  const many = placed(Array.from({ length: 200 }, (_, place) => column(`hparams.h${place}`)), { "hparams.h1": 50 }, 36, false);
  expect([many[1]!.left, many[1]!.width, many[2]!.left]).toEqual([272, 50, 322]);
  const seen = inWindow(many, 5000, 1000);
  expect(seen[0]!.place).toBe(0);
  expect(seen.length).toBeLessThan(25);
});

test("the picker finds columns by words in title and key", () => {
  const all = [lr, loss, column("metrics.training.loss.max")];
  expect(found(all, "loss MIN").map(({ key }) => key)).toEqual([loss.key]);
  expect(found(all, "")).toHaveLength(3);
});

test("an experiment's name comes first, a trial's number does; the curve stands beside the values", () => {
  const all = ["run.id", "run.name", "run.best_metric", "run.owner"].map((key) => column(key));
  expect(arranged(all, "experiments").map(({ key }) => key)).toEqual(["run.name", "run.id", "run.best_metric", "spark", "run.owner"]);
  expect(arranged(all, "trials").map(({ key }) => key)[0]).toBe("run.id");
});

test("an order or groups by columns that are not here are left out", () => {
  const known = new Map([["run.id", 1], ["hparams.lr", 1]]);
  expect(possible({ ...plain, sort: ["hparams.gone", "-hparams.lr"], group: "hparams.gone" }, known)).toMatchObject({ sort: ["-hparams.lr"], group: null });
  expect(possible({ ...plain, sort: ["hparams.gone"] }, known).sort).toEqual(usual);
  expect(possible(plain, known)).toBe(plain);
});
