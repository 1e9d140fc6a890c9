/** Whom the server takes this browser for. The key itself is sent once; a cookie that no script reads stands for it. */
import { address, ApiError, ask, get, newSecret, pageHeader, words } from "./client";
import { useResource, type Resource } from "./resource";
import type { Session } from "./types";

export function useSession(): Resource<Session> {
  return useResource<Session>("session", (signal) => get("session", {}, signal), null);
}

/** Raises the ApiError that says why the server does not know this key. */
export async function signIn(key: string): Promise<void> {
  newSecret();
  const answer = await fetch(address("session"), { method: "POST", headers: { Authorization: `Bearer ${key}`, ...pageHeader() } }).catch(() => null);
  if (answer === null) throw new ApiError(0, "The coordinator does not answer.", "");
  if (!answer.ok) throw await words(answer);
}

export async function signOut(): Promise<void> {
  await ask("session", {}, { method: "DELETE" });
}

/** Whether whoever is signed in may make keys. */
export const isAdmin = (session: Session | undefined): boolean => session?.scopes?.includes("admin") ?? false;
