/** What a job without a search took its schedules from, task by task. */
import type { Job, Task } from "../api/types";
import { latency, plural } from "../format";
import { searches } from "../jobs/standing";
import type { Figure } from "./figures";

export type Answer = NonNullable<NonNullable<Job["report"]>["unmeasured_schedules"]>[string];

/** In the order in which they are asked. */
const SOURCES: { readonly [source in Answer["source"]]: string } = {
  same: "measurements of the same workload",
  near: "schedules of the same loops in other sizes",
  learned: "what a base has learned",
  modelled: "a model of this machine",
  constructed: "a construction for this machine",
};

export function answerOf(job: Job, task: Task): Answer | null {
  return job.report?.unmeasured_schedules?.[task.name] ?? null;
}

export function answers(job: Job): Answer[] {
  return Object.values(job.report?.unmeasured_schedules ?? {});
}

/** As `near, likely`. */
export const inShort = ({ source, confidence }: Answer): string => `${source}, ${confidence}`;

/** What it rests on, what it took before, and whether it was checked. */
export function inFull({ basis, expected_us, is_verified }: Answer): string {
  const took = expected_us === null ? [] : [`${latency(expected_us)} when it was measured`];
  return [basis, ...took, is_verified ? "built and checked" : "nobody has built or checked it"].join("; ");
}

/** How many tasks rest on what. */
export function rests(job: Job): Figure[] {
  const found = answers(job);
  if (found.length === 0) return [];
  const counted = Object.entries(SOURCES).map(([source, words]): [number, string] => [found.filter((answer) => answer.source === source).length, words]);
  const parts = counted.filter(([count]) => count > 0).map(([count, words]) => `${count} on ${words}`);
  return [{ name: "Answered without measuring", value: plural(found.length, "task"), note: [...parts, `built and checked: ${howManyChecked(found)}`].join("; ") }];
}

function howManyChecked(found: readonly Answer[]): string {
  const checked = found.filter((answer) => answer.is_verified).length;
  if (checked === found.length) return "yes";
  return checked === 0 ? "no" : `${checked} of them`;
}

/** Why a task of a finished job has no schedule to look at. */
export function noSchedule(job: Job): string {
  if (searches(job)) return "None of this task's candidates was measured again and right when the job finished, so nothing was kept.";
  return `This job is ${job.options.mode}: what it hands out for this task was not measured, and is no verified schedule. A search of the same model makes one.`;
}
