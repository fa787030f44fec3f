// A filter in an address: `hparams.lr lt 0.01 any( run.state is ACTIVE run.name has "my run" )`. Words and spaces stay
// readable there, because a query writes a space as a plus and letters as they are.
import type { Operator } from "../types";
import type { Condition, Group, Node, Value } from "./filter";
import { deepest, depth, isGroup, needsValue, none, pruned } from "./filter";

const words: Record<Operator, string> = {
  is: "is",
  "is not": "not",
  "<": "lt",
  "<=": "le",
  ">": "gt",
  ">=": "ge",
  contains: "has",
  "does not contain": "lacks",
  "is empty": "empty",
  "is not empty": "given",
  before: "before",
  after: "after",
};
const operators = new Map(Object.entries(words).map(([operator, word]) => [word, operator as Operator]));

/** Text that could be mistaken for something else is written as JSON does. */
function quoted(text: string): string {
  const plain = /^[^\s"()]+$/.test(text) && !/^(true|false)$/.test(text) && !isNumeric(text);
  return plain ? text : JSON.stringify(text);
}

const isNumeric = (text: string): boolean => text.trim() !== "" && Number.isFinite(Number(text));
const written = (value: Value): string => (typeof value === "string" ? quoted(value) : String(value));

function nodeText(node: Node): string {
  if (isGroup(node)) return `${node.join}( ${node.items.map(nodeText).join(" ")} )`;
  const parts = [quoted(node.column), words[node.operator]];
  if (needsValue(node.operator)) parts.push(written(node.value ?? ""));
  return parts.join(" ");
}

export function filterText(group: Group): string {
  const clean = pruned(group);
  return clean.join === "all" ? clean.items.map(nodeText).join(" ") : nodeText(clean);
}

function tokens(text: string): string[] {
  return text.match(/"(?:[^"\\]|\\.)*"|\w+\(|\)|[^\s"()]+/g) ?? [];
}

function read(token: string): Value {
  if (token.startsWith('"')) return JSON.parse(token) as string;
  if (token === "true" || token === "false") return token === "true";
  return isNumeric(token) ? Number(token) : token;
}

class Reader {
  private place = 0;
  constructor(private words: string[]) {}

  items(depth: number): Node[] {
    const items: Node[] = [];
    for (;;) {
      const word = this.words[this.place];
      if (word === undefined || word === ")") return items;
      items.push(word === "all(" || word === "any(" ? this.group(word, depth) : this.condition());
    }
  }

  private group(word: string, depth: number): Group {
    if (depth > deepest) throw new Error("too deep");
    this.place += 1;
    const group: Group = { join: word === "all(" ? "all" : "any", items: this.items(depth + 1) };
    if (this.next() !== ")") throw new Error("not closed");
    return group;
  }

  private condition(): Condition {
    const column = String(read(this.next()));
    const operator = operators.get(this.next());
    if (!operator) throw new Error("no such operator");
    return needsValue(operator) ? { column, operator, value: read(this.next()) } : { column, operator };
  }

  get isDone(): boolean {
    return this.place === this.words.length;
  }

  private next(): string {
    const word = this.words[this.place];
    if (word === undefined) throw new Error("ends too early");
    this.place += 1;
    return word;
  }
}

/** The filter that `text` says, or undefined when it says none: an old or mistyped link then filters nothing. */
export function parseFilter(text: string): Group | undefined {
  if (text.trim() === "") return none;
  const reader = new Reader(tokens(text));
  try {
    // `any( ... )` alone becomes the root itself, so one more level is read than may remain.
    const group = pruned({ join: "all", items: reader.items(1) });
    return reader.isDone && depth(group) <= deepest ? group : undefined;
  } catch {
    return undefined;
  }
}
