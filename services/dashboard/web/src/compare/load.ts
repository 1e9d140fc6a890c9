/** The jobs that are compared, each with its tasks and rounds; one that cannot be had says why. */
import { ApiError, get } from "../api/client";
import type { Job, List, Task } from "../api/types";
import { curve, type Leaf, loadRounds, reached, roundsOf } from "../job/history";
import { isFinal } from "../jobs/standing";
import type { Compared } from "./overlay";

export type Loaded = Compared & { leaves: readonly Leaf[] };
export type Entry = { id: string; found?: Loaded; error?: ApiError };

/** A job that had ended when it was last asked for is not asked for again. */
export async function loadAll(ids: readonly string[], signal: AbortSignal, last: readonly Entry[] | undefined): Promise<Entry[]> {
  const known = new Map((last ?? []).map((entry) => [entry.id, entry.found]));
  return Promise.all(ids.map((id) => entryOf(id, signal, known.get(id))));
}

async function entryOf(id: string, signal: AbortSignal, last: Loaded | undefined): Promise<Entry> {
  if (last !== undefined && isFinal(last.job)) return { id, found: last };
  try {
    return { id, found: await loadOne(id, signal, last) };
  } catch (error) {
    if (error instanceof ApiError) return last === undefined ? { id, error } : { id, error, found: last };
    throw error;
  }
}

async function loadOne(id: string, signal: AbortSignal, last: Loaded | undefined): Promise<Loaded> {
  // Before its rounds: a job seen as ended then shows all of them.
  const job = await get<Job>(`jobs/${id}`, {}, signal);
  const [tasks, leaves] = await Promise.all([get<List<Task>>(`jobs/${id}/tasks`, {}, signal), loadRounds(id, signal, last?.leaves)]);
  const rounds = roundsOf(leaves);
  const came = { points: curve(rounds, tasks.items, job.created_at), reachedUs: reached(rounds, tasks.items) };
  return { job, tasks: tasks.items, leaves, ...came };
}
