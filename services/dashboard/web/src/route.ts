/** Where the user is: a path and its choices behind the `#`, so that a reload, a link and "back" keep them, and a title. */
import { useCallback, useEffect, useSyncExternalStore } from "react";
import { formatOrder, parseOrder, type Order } from "./ui/sort";

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

/** The choices of the present place, and how to change some of them; an empty one is left out. */
export function useChoices(): [Choices, (changes: Choices) => void] {
  const choose = useCallback((changes: Choices) => {
    const { path, choices } = parseRoute(window.location.hash);
    window.history.replaceState(null, "", formatRoute(path, { ...choices, ...changes }));
    window.dispatchEvent(new Event("hashchange"));
  }, []);
  return [useRoute().choices, choose];
}

/** The order of a table, which the address keeps under this name. */
export function useOrder(name: string, standard: string): { order: Order; onOrder: (order: Order) => void } {
  const [choices, choose] = useChoices();
  return { order: parseOrder(choices[name], standard), onOrder: (order) => choose({ [name]: formatOrder(order) }) };
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

export function useTitle(words: string): void {
  useEffect(() => {
    document.title = `${words} · Mallorn`;
  }, [words]);
}
