/** Requests to the API next to this page; the browser adds the cookie of a sign-in, which counts only with the page's secret. */
import type { ErrorBody, Page } from "./types";

export const KEY_NEEDED = "mallorn-key-needed";

export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly hint: string,
  ) {
    super(message);
  }
}

/** Whatever was thrown, in words that can be shown. */
export function apiError(reason: unknown): ApiError {
  return reason instanceof ApiError ? reason : new ApiError(0, String(reason), "");
}

export type Query = { readonly [name: string]: string | number | boolean | readonly string[] | null | undefined };

/** Where a route is, relative to the page: a path prefix is kept. No id in a link leads to another route, as `..` would. */
export function address(path: string, query: Query = {}, base: string = document.baseURI): string {
  if (!/^[\w/-]+$/.test(path)) throw new ApiError(404, "The named resource does not exist here.", "");
  const url = new URL(`api/v1/${path}`, base);
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") url.searchParams.append(name, String(one));
    }
  }
  return url.href;
}

/** Where the page's secret is stored: servers on other ports of the host get the cookie, but not the storage of this origin. */
const SECRET = "mallorn-session";

/** The header without which the cookie counts for nothing. */
export const pageHeader = (): { [name: string]: string } => (localStorage[SECRET] ? { "X-Mallorn-Session": localStorage[SECRET] } : {});

/** Start a sign-in with a random text; the text of one that ends with a dot waits for the provider's part. */
export function newSecret(end = ""): string {
  const text = Array.from(crypto.getRandomValues(new Uint8Array(32)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  localStorage[SECRET] = text + end;
  return text;
}

/** Take the provider's part out of the address to which a sign-in returned. */
export function takeClaim(): void {
  const [, claim] = /^#session=([\w-]+)$/.exec(location.hash) ?? [];
  if (claim && localStorage[SECRET]?.endsWith(".")) localStorage[SECRET] += claim;
  if (claim) history.replaceState(null, "", location.pathname);
}

/** The answer, or an ApiError in words that can be shown. */
export async function ask(path: string, query: Query = {}, init: RequestInit = {}): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(address(path, query), { ...init, headers: { ...init.headers, ...pageHeader() } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError(0, "The coordinator does not answer.", "It is tried again by itself. Is mallorn up?");
  }
  if (!answer.ok) throw await refusal(answer);
  return answer;
}

export async function get<Answer>(path: string, query: Query = {}, signal?: AbortSignal): Promise<Answer> {
  return (await ask(path, query, { signal: signal ?? null })).json() as Promise<Answer>;
}

export async function post<Answer>(path: string, body?: unknown, more = {}): Promise<Answer> {
  const init = { method: "POST", headers: { "Content-Type": "application/json", ...more } };
  const answer = await ask(path, {}, body === undefined ? init : { ...init, body: JSON.stringify(body) });
  return answer.json() as Promise<Answer>;
}

/** Every item of a list, page by page. */
export async function all<Item>(path: string, query: Query, signal?: AbortSignal): Promise<Item[]> {
  const items: Item[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<Item> = await get(path, { limit: 1000, ...query, cursor }, signal);
    items.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return items;
}

export async function refusal(answer: Response): Promise<ApiError> {
  if (answer.status === 401) window.dispatchEvent(new Event(KEY_NEEDED));
  return words(answer);
}

export async function words(answer: Response): Promise<ApiError> {
  const body = (await answer.json().catch(() => null)) as Partial<ErrorBody> | null;
  return new ApiError(answer.status, body?.detail ?? `The server answered ${answer.status}.`, body?.hint ?? "");
}
