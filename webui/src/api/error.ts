// What goes wrong on the way to the server, as one sentence a person can act on.

/** The server answered, and refused. `detail` is its sentence. `fields` are problems per field or line, where it named them. */
export class ApiError extends Error {
  override name = "ApiError";
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly body: unknown = undefined,
  ) {
    super(detail);
  }
}

/** No answer at all: the server ended, or the network did. */
export class Unreachable extends Error {
  override name = "Unreachable";
  constructor() {
    super("The server does not answer. Start it again with: det ui");
  }
}

/** The sentence in an answer's body: `detail` as text, or FastAPI's list of problems. */
export function sentence(status: number, body: unknown): string {
  const detail = (body as { detail?: unknown } | null)?.detail;
  if (typeof detail === "string") return detail;
  if (Array.isArray(detail)) {
    return detail.map((one: { loc?: unknown[]; msg?: string }) => `${(one.loc ?? []).slice(1).join(".")}: ${one.msg ?? ""}`).join("; ");
  }
  return `The server answered with status ${status} and no reason. Its terminal may say more.`;
}

export const explain = (error: unknown): string => (error instanceof Error ? error.message : String(error));
