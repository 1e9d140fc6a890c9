/** Figures of a job's summary: what it may still win, what trials won, what it takes beside others, what stock's tuner found. */
import type { Job, Task } from "../api/types";
import { count, duration, latency, percent, plural, versus } from "../format";
import { isFinal } from "../jobs/standing";

export const LOOK_AHEAD = 100;

export type Figure = { name: string; value: string; note: string };

/** In one decimal, because less than one percent decides whether a job goes on. */
const share = (value: number): string => `${(value * 100).toFixed(1)} %`;

/** Its tasks' latency now, what the machine takes at least, what the end may bring. */
export function headroom(job: Job): Figure[] {
  return [limit(job), end(job)].filter((figure) => figure !== null);
}

function limit({ outlook }: Job): Figure | null {
  if (!outlook || outlook.limit_us === null) return null;
  const reached = Math.min(1, outlook.limit_us / outlook.current_us);
  return { name: "The machine's limit", value: latency(outlook.limit_us), note: `its tasks reach ${Math.round(reached * 100)} % of it` };
}

function end(job: Job): Figure | null {
  const { outlook } = job;
  if (!outlook) return null;
  if (isFinal(job) || outlook.trials === 0) return { name: "Left to win", value: share(outlook.gain), note: `in the next ${LOOK_AHEAD} trials` };
  return { name: "Expected at the end", value: latency(outlook.expected_us), note: `after some ${count(outlook.trials)} trials more; the next ${LOOK_AHEAD} win ${share(outlook.gain)}` };
}

export function busy(job: Job): Figure[] {
  const found = job.report?.contention;
  const full = found?.loads.at(-1);
  if (!found || !full) return [];
  const wins = found.min_programs !== null && full.loaded_us !== null;
  const note = wins ? `with the schedules for busy machines, ${latency(full.alone_us)} without it` : "the schedules that are best alone are best there";
  return [{ name: `Beside ${plural(full.programs, "program")}`, value: latency(wins ? full.loaded_us : full.alone_us), note }];
}

export const idle = ({ device_use: use }: Job): Figure[] =>
  use ? [{ name: "Devices idle", value: percent(use.idle_share), note: `of ${duration(use.seconds)}; ${duration(use.build_wait_sec)} for builds` }] : [];

/** Less is told as nothing: the next measurement would say otherwise. */
const LEAST_SHARE = 0.005;

export function earned(job: Job): Figure[] {
  const share = won(job);
  if (share === null) return [];
  const guesses = job.report?.model_contests?.latency_us?.guesses ?? null;
  return [{ name: "Won by trials", value: share < LEAST_SHARE ? "nothing" : percent(share), note: [`over a job without trials, ${latency(guesses)}`, ...means(job)].join("; ") }];
}

function won(job: Job): number | null {
  const joint = job.report?.model_contests;
  const { before, after, guesses } = joint?.latency_us ?? {};
  if (!guesses || before === undefined) return null;
  return joint?.uses_guesses ? 0 : 1 - ((joint?.uses_replacements ? after : before) ?? before) / guesses;
}

function means(job: Job): string[] {
  const ranked = Object.entries(job.report?.search_methods ?? {}).sort(([, one], [, other]) => other - one);
  return ranked.length > 0 ? [`tasks by ${ranked.map(([name, count]) => `${name} ${count}`).join(", ")}`] : [];
}

/** Whether they tell of any. */
export const hasStock = (tasks: readonly Task[]): boolean => tasks.some((task) => task.stock_us !== null);

/** Its least time, whose host nobody knows: it need not compare with ours. */
export function stockOf(task: Task): Figure | null {
  if (task.stock_us === null) return null;
  const beside = task.latency_us === null ? [] : [`${versus(task.stock_us / task.latency_us)} here`];
  const note = ["as its logs tell, on a host that they do not name", ...beside].join("; ");
  return { name: "Stock's tuner", value: latency(task.stock_us), note };
}
