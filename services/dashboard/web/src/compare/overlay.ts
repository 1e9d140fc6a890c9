/** Several jobs over one another: loaded with their tasks and rounds, their curves on one axis, their tasks in one list. */
import type { Job, List, OptionName, Task } from "../api/types";
import { curve, type Leaf, loadRounds, type Point, reached, roundsOf } from "../job/history";
import { ApiError, get } from "../api/client";
import { isFinal } from "../jobs/standing";

/** `reachedUs` is what the job itself came to, task by task: a task's own latency is the best of all jobs. */
export type Compared = { job: Job; tasks: readonly Task[]; points: readonly Point[]; reachedUs: ReadonlyMap<number, number | null> };

/** One list of places, and for each curve its value there: held from point to point, empty outside its own ends. */
export function overlay(curves: readonly (readonly Point[])[], place: (point: Point) => number): { x: number[]; y: (number | null)[][] } {
  const x = [...new Set(curves.flatMap((points) => points.map(place)))].sort((one, other) => one - other);
  return { x, y: curves.map((points) => held(points, place, x)) };
}

function held(points: readonly Point[], place: (point: Point) => number, x: readonly number[]): (number | null)[] {
  const last = points.at(-1);
  let at = -1;
  return x.map((where) => {
    while (at + 1 < points.length && place(points[at + 1]!) <= where) at += 1;
    return last === undefined || where > place(last) ? null : (points[at]?.totalUs ?? null);
  });
}

export type Cell = { task: Task; us: number | null };
export type TaskRow = { workload: string; name: string; cells: (Cell | undefined)[] };

/** A row for every workload of any of the jobs; those on which most time is spent come first. */
export function sideBySide(jobs: readonly Compared[]): TaskRow[] {
  const rows = new Map<string, TaskRow>();
  jobs.forEach(({ tasks, reachedUs }, column) => {
    for (const task of tasks) {
      const row = rows.get(task.workload) ?? { workload: task.workload, name: task.name, cells: jobs.map(() => undefined) };
      row.cells[column] ??= { task, us: reachedUs.get(task.index) ?? null };
      rows.set(task.workload, row);
    }
  });
  return [...rows.values()].sort((one, other) => heaviest(other) - heaviest(one));
}

export function heaviest(row: TaskRow): number {
  return Math.max(0, ...row.cells.map((cell) => (cell?.us ?? 0) * (cell?.task.weight ?? 0)));
}

/** Which column is the fastest, where at least two can be compared; equals are none. */
export function fastest(row: TaskRow): number | null {
  const known = row.cells.flatMap((cell, column) => (cell?.us == null ? [] : [{ column, us: cell.us }]));
  const [first, second] = known.sort((one, other) => one.us - other.us);
  return first === undefined || second === undefined || first.us === second.us ? null : first.column;
}

/** Options in which the jobs are not alike, by name. */
export function differences(jobs: readonly Job[]): OptionName[] {
  const names = new Set(jobs.flatMap((job) => Object.keys(job.options) as OptionName[]));
  return [...names].filter((name) => new Set(jobs.map((job) => JSON.stringify(job.options[name]))).size > 1).sort();
}

/** Names that tell jobs apart: those of one name get the beginning of their id. */
export function labels(jobs: readonly Job[]): string[] {
  return jobs.map((job) => {
    const alone = jobs.filter((other) => other.name === job.name).length === 1;
    return alone ? job.name : `${job.name} ${job.id.slice(0, 6)}`;
  });
}

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
