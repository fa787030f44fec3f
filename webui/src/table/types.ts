// The words of the table that come from the server, under short names.
import type { components } from "../api";

type Schemas = components["schemas"];
export type Column = Schemas["Column"];
export type ColumnType = Column["type"];
export type Section = Column["section"];
export type Operator = Column["operators"][number];
export type TableAnswer = Schemas["Table"];
export type TableRow = Schemas["TableRow"];
export type TableQuestion = Schemas["TableQuestion"];
export type Range = Schemas["Range"];
export type Outcome = Schemas["Outcome"];
export type Kind = "experiments" | "trials";

/** Which rows a table can show at all: everything, one project, or the trials of one experiment. */
export interface Scope {
  projectId?: number;
  experimentId?: number;
}
