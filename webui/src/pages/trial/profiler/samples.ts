// Which samples of the machine share a chart, and what they are called there.
import { amounts } from "../../../charts/logic/amounts";
import type { ChartOf } from "../../../charts/logic/charts";
import { isProfiler } from "../../../charts/logic/charts";

type Series = ChartOf["series"][number];
type Amount = (typeof amounts)[keyof typeof amounts];

export interface SampleChart {
  title: string;
  amount: Amount;
  lines: { series: Series; name: string }[];
}

interface Known {
  title: string;
  amount: Amount;
  /** The last part of a sample's name, and what it is called in this chart. */
  names: Record<string, string>;
}

const known: Known[] = [
  { title: "GPU utilisation", amount: amounts.percent, names: { gpu_util: "" } },
  { title: "GPU memory, free", amount: amounts.bytes, names: { gpu_free_memory: "" } },
  { title: "CPU utilisation", amount: amounts.percent, names: { cpu_util_simple: "" } },
  { title: "Memory, available", amount: amounts.bytes, names: { memory_free: "" } },
  { title: "Disk throughput", amount: amounts.bytesPerSecond, names: { disk_throughput_read: "read", disk_throughput_write: "written" } },
  { title: "Disk operations", amount: amounts.perSecond, names: { disk_iops: "" } },
  { title: "Disk use", amount: amounts.percent, names: { disk_util: "" } },
  { title: "Network", amount: amounts.bytesPerSecond, names: { net_throughput_recv: "in", net_throughput_sent: "out" } },
];

/** "node.GPU-1.gpu_util" is the sample gpu_util of "node GPU-1". */
function split(name: string): { of: string; sample: string } {
  const at = name.lastIndexOf(".");
  return { of: name.slice(0, Math.max(0, at)).replace(".", " "), sample: name.slice(at + 1) };
}

const lineName = (of: string, word: string, isOnly: boolean): string => (isOnly ? word || of : [of, word].filter(Boolean).join(" "));

/** Charts in the order above; samples that nobody knows have a chart each, at the end. */
export function sampleCharts(all: readonly Series[]): SampleChart[] {
  const samples = all.filter((one) => isProfiler(one.group)).map((series) => ({ series, ...split(series.name) }));
  const isOneNode = new Set(samples.map(({ of }) => of.split(" ")[0])).size === 1;
  const made = known.map(({ title, amount, names }) => {
    const own = samples.filter(({ sample }) => sample in names);
    const isOnly = isOneNode && new Set(own.map(({ of }) => of)).size === 1;
    return { title, amount, lines: own.map(({ series, of, sample }) => ({ series, name: lineName(of, names[sample] ?? "", isOnly) })) };
  });
  const rest = samples.filter(({ sample }) => !known.some(({ names }) => sample in names));
  const strange = rest.map(({ series, of, sample }) => ({ title: sample, amount: amounts.plain, lines: [{ series, name: of }] }));
  return [...made, ...strange].filter(({ lines }) => lines.length);
}
