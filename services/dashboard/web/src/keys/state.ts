/** What a key is worth now, and which keys may be asked for. */
import type { ApiKey, NewKey } from "../api/types";
import { duration } from "../format";

export const SCOPES: { readonly [scope in ApiKey["scopes"][number]]: string } = {
  read: "show and list",
  submit: "upload, submit, steer, delete",
  device: "show the fleet alone",
  admin: "all, keys too",
};

export const LASTING: { readonly [days: string]: string } = { "30": "30 days", "90": "90 days", "365": "a year", "": "no end" };

export function stateOf(key: ApiKey, nowSec: number = Date.now() / 1000): string {
  if (key.revoked_at != null) return "revoked";
  if (key.expires_at == null) return "good";
  return key.expires_at > nowSec ? `good for ${duration(key.expires_at - nowSec)}` : "expired";
}

export const isOver = (key: ApiKey, nowSec?: number): boolean => !stateOf(key, nowSec).startsWith("good");

/** Those that open something first; within them the newest. */
export function inOrder(keys: readonly ApiKey[], nowSec?: number): ApiKey[] {
  return [...keys].sort((one, two) => Number(isOver(one, nowSec)) - Number(isOver(two, nowSec)) || two.created_at - one.created_at);
}

/** What a form says, as the API takes it. */
export function wanted(form: FormData): NewKey {
  const owner = String(form.get("owner") ?? "").trim();
  const days = String(form.get("days") ?? "");
  return {
    name: String(form.get("name") ?? "").trim(),
    owner: owner === "" ? null : owner,
    scopes: form.getAll("scope").map(String) as NewKey["scopes"],
    days: days === "" ? null : Number(days),
  };
}
