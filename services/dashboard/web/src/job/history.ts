/** A job's rounds, and what they add up to: its curve, and each task's way down. */
import type { Page, Round, Task } from "../api/types";
import { get } from "../api/client";

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

export type Point = { trials: number; sec: number; totalUs: number };
export type Way = { best: number[]; expectedGainUs: number | null; promise: number | null };

/** The job's weighted total after every round that ended, in the order of their ends, once every task that ever got a time has one. */
export function curve(rounds: readonly Round[], tasks: readonly Task[], createdAt: number): Point[] {
  const weights = new Map(tasks.filter((task) => task.latency_us !== null).map((task) => [task.index, task.weight]));
  const best = knownAtStart(rounds, tasks);
  const found: Point[] = [];
  let trials = 0;
  const note = (sec: number): void => {
    const totalUs = total(best, weights);
    if (totalUs !== null) found.push({ trials, sec, totalUs });
  };
  note(0);
  for (const round of inOrderOfEnds(rounds)) {
    trials += round.trials;
    lower(best, round.task_index, round.best_us);
    note((round.finished_at ?? createdAt) - createdAt);
  }
  return found;
}

/** By task what the job's own rounds came to, with what was known when they were planned. */
export function reached(rounds: readonly Round[], tasks: readonly Task[]): Map<number, number | null> {
  const best = knownAtStart(rounds, tasks);
  for (const round of rounds) {
    lower(best, round.task_index, round.previous_best_us);
    lower(best, round.task_index, round.best_us);
  }
  return best;
}

/** By task: its best after each of its rounds, and what the newest forecast promised of the next one. */
export function ways(rounds: readonly Round[]): Map<number, Way> {
  const found = new Map<number, Way>();
  for (const round of rounds) {
    const way = found.get(round.task_index) ?? { best: [], expectedGainUs: null, promise: null };
    const last = way.best.at(-1) ?? round.previous_best_us;
    if (way.best.length === 0 && round.previous_best_us !== null) way.best.push(round.previous_best_us);
    if (round.best_us !== null) way.best.push(Math.min(last ?? round.best_us, round.best_us));
    const gainUs = round.forecast?.gain_us ?? null;
    if (gainUs !== null) way.expectedGainUs = gainUs * round.weight;
    if (round.forecast?.gain_probability != null) way.promise = round.forecast.gain_probability;
    found.set(round.task_index, way);
  }
  return found;
}

/** What one more round may take off a task at most: nothing saves more than all that the task takes. */
export function nextGainUs(task: Task, way: Way | undefined): number | null {
  const expectedUs = way?.expectedGainUs ?? null;
  if (expectedUs === null || task.state === "done" || task.state === "retired") return null;
  return Math.min(expectedUs, task.weighted_latency_us ?? expectedUs);
}

/** What was known of each task before the job's first round for it. */
function knownAtStart(rounds: readonly Round[], tasks: readonly Task[]): Map<number, number | null> {
  const known = new Map(tasks.map((task) => [task.index, task.latency_us] as [number, number | null]));
  for (const round of [...rounds].reverse()) known.set(round.task_index, round.previous_best_us);
  return known;
}

function inOrderOfEnds(rounds: readonly Round[]): Round[] {
  const ended = rounds.filter((round) => round.finished_at !== null);
  return ended.sort((one, other) => (one.finished_at ?? 0) - (other.finished_at ?? 0));
}

function lower(best: Map<number, number | null>, index: number, us: number | null): void {
  const known = best.get(index) ?? null;
  if (us !== null && (known === null || us < known)) best.set(index, us);
}

/** Null until each task has a time: a sum over some of them rises with every one that joins, and compares with nothing. */
function total(best: ReadonlyMap<number, number | null>, weights: ReadonlyMap<number, number>): number | null {
  const known = [...weights].map(([index, weight]) => ((us) => (us === null ? null : us * weight))(best.get(index) ?? null));
  return known.length === 0 || known.includes(null) ? null : known.reduce<number>((sum, us) => sum + (us ?? 0), 0);
}
