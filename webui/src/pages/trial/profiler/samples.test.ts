import { expect, test } from "vitest";
import { sampleCharts } from "./samples";

const series = (group: string, name: string) => ({ group, name, chart: "", points: 3, trials: 1, is_sampled: true });

test("samples of one kind share a chart, devices and nodes are lines", () => {
  const charts = sampleCharts([
    series("network", "a.net_throughput_sent"), series("network", "a.net_throughput_recv"), series("gpu", "a.GPU-1.gpu_util"), series("gpu", "a.GPU-2.gpu_util"),
    series("cpu", "a.cpu_util_simple"), series("training", "loss"), series("disk", "a.odd_thing"),
  ]);
  expect(charts.map(({ title, lines }) => [title, lines.map(({ name }) => name)])).toEqual([
    ["GPU utilisation", ["a GPU-1", "a GPU-2"]],
    ["CPU utilisation", ["a"]],
    ["Network", ["out", "in"]],
    ["odd_thing", ["a"]],
  ]);
});

test("on two nodes every line says which", () => {
  const [network] = sampleCharts([series("network", "a.net_throughput_sent"), series("network", "b.net_throughput_sent")]);
  expect(network?.lines.map(({ name }) => name)).toEqual(["a out", "b out"]);
});
