// All rows that fit, with the columns that are shown, as a file. They are fetched in pages, so that a large table neither
// waits in silence nor fills the memory of the server.
import { toCsv } from "../../charts/logic/csv";
import type { Column, TableAnswer } from "../types";

const step = 1000;

export interface Export {
  columns: readonly Column[];
  ask: (offset: number, limit: number) => Promise<TableAnswer>;
  onProgress: (done: number, total: number) => void;
}

type Cell = string | number | boolean | null;

function cell(value: unknown): Cell {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : (value as Cell);
}

/** Two columns may have one title (a hyperparameter and a metric): those are told apart by their keys. */
export function heads(columns: readonly Column[]): string[] {
  const titles = columns.map(({ title }) => title);
  return columns.map(({ key, title }) => (titles.filter((one) => one === title).length > 1 ? key : title));
}

export async function exported({ columns, ask, onProgress }: Export): Promise<string> {
  const rows: Cell[][] = [];
  // Without its number a row could not be found again.
  const isNumbered = columns.some(({ key }) => key === "run.id");
  for (;;) {
    const { rows: more, total } = await ask(rows.length, step);
    for (const row of more) rows.push([...(isNumbered ? [] : [row.id]), ...row.cells.map(cell)]);
    onProgress(rows.length, total);
    if (more.length === 0 || rows.length >= total) return toCsv([...(isNumbered ? [] : ["ID"]), ...heads(columns)], rows);
  }
}

export function download(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  // Not at once: some browsers read the file only after this returns.
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
