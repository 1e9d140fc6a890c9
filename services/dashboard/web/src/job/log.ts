/** A job's rounds, oldest first: pages whose rounds have all ended are never asked for again. */
import { get } from "../api/client";
import type { Page, Round } from "../api/types";

export type Leaf = { cursor: string | null; page: Page<Round> };
const PAGE_ROUNDS = 500;
const OPEN = new Set(["queued", "leased"]);

export async function loadRounds(jobId: string, signal: AbortSignal, last: readonly Leaf[] | undefined): Promise<Leaf[]> {
  const leaves = settled(last ?? []);
  let cursor = leaves.at(-1)?.page.next_cursor ?? null;
  do {
    const query = { order: "oldest", limit: PAGE_ROUNDS, cursor };
    const page: Page<Round> = await get(`jobs/${jobId}/rounds`, query, signal);
    leaves.push({ cursor, page });
    cursor = page.next_cursor;
  } while (cursor !== null);
  return leaves;
}

/** The first pages that cannot change any more: they are followed by another and hold no open round. */
export function settled(leaves: readonly Leaf[]): Leaf[] {
  const changing = leaves.findIndex(({ page }) => page.next_cursor === null || page.items.some((round) => OPEN.has(round.state)));
  return leaves.slice(0, changing === -1 ? leaves.length : changing);
}

export function roundsOf(leaves: readonly Leaf[] | undefined): Round[] {
  return (leaves ?? []).flatMap(({ page }) => page.items);
}
