// @vitest-environment jsdom
import { afterEach, beforeEach, expect, test, vi } from "vitest";

class FakeStream extends EventTarget {
  static CLOSED = 2;
  static all: FakeStream[] = [];
  readyState = 1;
  onerror: (() => void) | undefined;
  constructor(readonly address: string) {
    super();
    FakeStream.all.push(this);
  }
  close() {
    this.readyState = FakeStream.CLOSED;
  }
  say(kind: string, data: unknown = {}) {
    this.dispatchEvent(Object.assign(new Event(kind), { data: JSON.stringify(data) }));
  }
}

let stop = () => {};

async function started() {
  vi.resetModules();
  vi.useFakeTimers();
  vi.stubGlobal("EventSource", FakeStream);
  vi.stubGlobal("fetch", () => Promise.reject(new TypeError("no network")));
  FakeStream.all = [];
  const { queries } = await import("./query");
  const asked = vi.spyOn(queries, "invalidateQueries").mockResolvedValue();
  const live = await import("./live");
  stop = live.startLive();
  return { live, asked, stream: () => FakeStream.all.at(-1) as FakeStream };
}

const hide = (isHidden: boolean) => {
  Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
};

beforeEach(() => hide(false));
afterEach(() => stop());

test("the first connection asks for nothing twice; one after a gap asks for everything", async () => {
  const { live, asked, stream } = await started();
  stream().say("hello");
  expect([live.liveNow().state, asked.mock.calls.length]).toEqual(["live", 0]);
  stream().onerror?.();
  expect(live.liveNow().state).toBe("reconnecting");
  stream().say("hello");
  expect([live.liveNow().state, asked.mock.calls]).toEqual(["live", [[]]]);
});

test("a refused stream is tried again, ever more slowly, and a cut one is left to the browser", async () => {
  const { stream } = await started();
  stream().onerror?.();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(FakeStream.all).toHaveLength(1);
  stream().close();
  stream().onerror?.();
  await vi.advanceTimersByTimeAsync(1000);
  expect(FakeStream.all).toHaveLength(2);
});

test("a hidden tab lets go of its connection soon, and takes it up when it is seen", async () => {
  const { live, asked, stream } = await started();
  stream().say("hello");
  hide(true);
  await vi.advanceTimersByTimeAsync(10_000);
  expect([live.liveNow().state, stream().readyState]).toEqual(["paused", FakeStream.CLOSED]);
  hide(false);
  stream().say("hello");
  expect([live.liveNow().state, FakeStream.all.length, asked.mock.calls]).toEqual(["live", 2, [[]]]);
});

test("a lost store is known with its reason, and everything is asked for when it is back", async () => {
  const { live, asked, stream } = await started();
  stream().say("hello");
  stream().say("store", { available: false, reason: "disk full" });
  expect(live.liveNow().store).toEqual({ available: false, reason: "disk full" });
  stream().say("store", { available: true });
  expect([live.liveNow().store.available, asked.mock.calls]).toEqual([true, [[]]]);
});
