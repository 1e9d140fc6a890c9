/** Where the user is: a path and its choices behind the `#`, so that a reload, a link and "back" keep them. */
import { useCallback, useSyncExternalStore } from "react";

export type Choices = { readonly [name: string]: string };
export type Route = { path: string[]; choices: Choices };

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decode),
    choices: Object.fromEntries(new URLSearchParams(query)),
  };
}

export function formatRoute(path: readonly string[], choices: Choices = {}): string {
  const set = Object.entries(choices).filter(([, value]) => value !== "");
  const query = new URLSearchParams(set).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${query ? `?${query}` : ""}`;
}

export function useRoute(): Route {
  return parseRoute(useSyncExternalStore(subscribe, () => window.location.hash));
}

/** Change some choices of the present place; an empty one is left out. */
export function useChoose(): (changes: Choices) => void {
  return useCallback((changes) => {
    const { path, choices } = parseRoute(window.location.hash);
    window.history.replaceState(null, "", formatRoute(path, { ...choices, ...changes }));
    window.dispatchEvent(new Event("hashchange"));
  }, []);
}

export function go(path: readonly string[], choices: Choices = {}): void {
  window.location.hash = formatRoute(path, choices);
}

function subscribe(changed: () => void): () => void {
  window.addEventListener("hashchange", changed);
  return () => window.removeEventListener("hashchange", changed);
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
