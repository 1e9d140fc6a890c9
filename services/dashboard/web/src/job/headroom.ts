/** What a job may still win: its tasks' latency now, what the machine takes at least, what the end may bring. */
import type { Job } from "../api/types";
import { count, latency } from "../format";
import { isFinal } from "../jobs/standing";

export const LOOK_AHEAD = 100;

/** A figure of the summary. */
export type Figure = { name: string; value: string; note: string };

/** In one decimal, because less than one percent decides whether a job goes on. */
const share = (value: number): string => `${(value * 100).toFixed(1)} %`;

export function headroom(job: Job): Figure[] {
  return [limit(job), end(job)].filter((figure) => figure !== null);
}

function limit({ outlook }: Job): Figure | null {
  if (!outlook || outlook.limit_us === null) return null;
  const reached = Math.min(1, outlook.limit_us / outlook.now_us);
  return { name: "The machine's limit", value: latency(outlook.limit_us), note: `its tasks reach ${Math.round(reached * 100)} % of it` };
}

function end(job: Job): Figure | null {
  const { outlook } = job;
  if (!outlook) return null;
  if (isFinal(job) || outlook.trials === 0) return { name: "Left to win", value: share(outlook.gain), note: `in the next ${LOOK_AHEAD} trials` };
  return { name: "Expected at the end", value: latency(outlook.end_us), note: `after some ${count(outlook.trials)} trials more; the next ${LOOK_AHEAD} win ${share(outlook.gain)}` };
}
