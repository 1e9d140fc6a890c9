/** What trials won over the first guesses, which a job has before its first trial. */
import type { Job } from "../api/types";
import { latency, percent } from "../format";
import type { Figure } from "./headroom";

/** Less is told as nothing: the next measurement would say otherwise. */
const LEAST_SHARE = 0.005;

export function earned(job: Job): Figure[] {
  const won = job.report?.earned;
  if (!won || !job.report?.trials) return [];
  const share = Math.max(0, 1 - won.found_us / won.guessed_us);
  const guesses = `first guesses, ${latency(won.guessed_us)} over the tasks`;
  if (share < LEAST_SHARE) return [{ name: "Won by trials", value: "nothing", note: `beyond the ${guesses}` }];
  return [{ name: "Won by trials", value: percent(share), note: [`over the ${guesses}`, ...means(won)].join("; ") }];
}

function means({ saved_us, guessed_us }: NonNullable<NonNullable<Job["report"]>["earned"]>): string[] {
  const ranked = Object.entries(saved_us ?? {}).sort(([, one], [, other]) => other - one);
  const told = ranked.filter(([, us]) => us / guessed_us >= LEAST_SHARE);
  return told.length > 0 ? [told.map(([name, us]) => `${name} ${percent(us / guessed_us)}`).join(", ")] : [];
}
