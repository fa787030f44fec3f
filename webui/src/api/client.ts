// One typed door to the server. Paths, parameters, bodies and answers come from the checked-in OpenAPI document.
import { ApiError, Unreachable, sentence } from "./error";
import { refused } from "./session";
import type { paths } from "./types.gen";

type Verb = "get" | "post" | "put" | "patch" | "delete";
type PathsOf<V extends Verb> = {
  [P in keyof paths]: paths[P] extends { [verb in V]: { responses: unknown } } ? P : never;
}[keyof paths] &
  string;
type Operation<P extends keyof paths, V extends Verb> = V extends keyof paths[P] ? paths[P][V] : never;

type Content<A> = A extends { content: infer C } ? (C extends { "application/json": infer J } ? J : C[keyof C]) : undefined;
type Success<R> = { [S in keyof R]: S extends 200 | 201 | 202 | 204 ? Content<R[S]> : never }[keyof R];
/** What the server answers to this call. */
export type Answer<P extends keyof paths, V extends Verb = "get"> =
  Operation<P, V> extends { responses: infer R } ? Success<R> : never;

type Given<O, K extends "path" | "query"> = O extends { parameters: infer A } ? (K extends keyof A ? A[K] : undefined) : undefined;
type BodyOf<O> = O extends { requestBody?: infer B } ? (B extends { content: { "application/json": infer J } } ? J : undefined) : undefined;
type Part<K extends string, T> = [T] extends [undefined] ? unknown : undefined extends T ? { [k in K]?: T } : { [k in K]: T };
/** The parameters and body of this call. */
export type Input<P extends keyof paths, V extends Verb = "get"> = Part<"path", Given<Operation<P, V>, "path">> &
  Part<"query", Given<Operation<P, V>, "query">> &
  Part<"body", BodyOf<Operation<P, V>>> & { signal?: AbortSignal };
type Rest<I> = Record<string, never> extends I ? [input?: I] : [input: I];

interface Loose {
  path?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
  signal?: AbortSignal;
}

/** The address of a call: `{id}` filled in, lists as repeated keys, undefined left out. Also for download links. */
export function url(path: string, { path: parts = {}, query = {} }: Pick<Loose, "path" | "query"> = {}): string {
  const filled = path.replace(/\{(\w+)(?::\w+)?\}/g, (_, name: string) => encodeURIComponent(String(parts[name])));
  const params = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) if (one !== undefined && one !== null) params.append(key, String(one));
  }
  const text = params.toString();
  return text ? `${filled}?${text}` : filled;
}

async function body(response: Response): Promise<unknown> {
  if (response.status === 204) return undefined;
  const kind = response.headers.get("content-type") ?? "";
  return kind.includes("json") ? response.json() : response.text();
}

async function send(verb: Verb, path: string, input: Loose = {}): Promise<unknown> {
  const options: RequestInit = { method: verb.toUpperCase(), headers: { accept: "application/json" } };
  if (input.signal) options.signal = input.signal;
  if (input.body !== undefined) {
    options.headers = { ...options.headers, "content-type": "application/json" };
    options.body = JSON.stringify(input.body);
  }
  let response: Response;
  try {
    response = await fetch(url(path, input), options);
  } catch (error) {
    if (input.signal?.aborted) throw error;
    throw new Unreachable();
  }
  const answer = await body(response);
  if (response.ok) return answer;
  if (response.status === 401) refused();
  throw new ApiError(response.status, sentence(response.status, answer), answer);
}

type Call<V extends Verb> = <P extends PathsOf<V>>(path: P, ...rest: Rest<Input<P, V>>) => Promise<Answer<P, V>>;

function call<V extends Verb>(verb: V): Call<V> {
  return ((path: string, input?: Loose) => send(verb, path, input)) as unknown as Call<V>;
}

/** `api.get("/api/v1/experiments/{id}", { path: { id: 7 } })`, and the same for the other verbs. */
export const api = { get: call("get"), post: call("post"), put: call("put"), patch: call("patch"), delete: call("delete") };
