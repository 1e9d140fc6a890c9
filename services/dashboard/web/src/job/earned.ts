/** What trials won over a job without any, which hands out the best of three first guesses a task. */
import type { Job } from "../api/types";
import { latency, percent } from "../format";
import type { Figure } from "./headroom";

/** Less is told as nothing: the next measurement would say otherwise. */
const LEAST_SHARE = 0.005;

export function earned(job: Job): Figure[] {
  const share = won(job);
  if (share === null) return [];
  const guesses = job.report?.inside_the_model?.latency_us?.guesses ?? null;
  return [{ name: "Won by trials", value: share < LEAST_SHARE ? "nothing" : percent(share), note: [`over a job without trials, ${latency(guesses)}`, ...means(job)].join("; ") }];
}

function won(job: Job): number | null {
  const joint = job.report?.inside_the_model;
  const { before, after, guesses } = joint?.latency_us ?? {};
  if (!guesses || before === undefined) return null;
  return joint?.guessed ? 0 : 1 - ((joint?.taken ? after : before) ?? before) / guesses;
}

function means(job: Job): string[] {
  const ranked = Object.entries(job.report?.found_by ?? {}).sort(([, one], [, other]) => other - one);
  return ranked.length > 0 ? [`tasks by ${ranked.map(([name, count]) => `${name} ${count}`).join(", ")}`] : [];
}
