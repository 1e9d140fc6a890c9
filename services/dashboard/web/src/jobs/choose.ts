/** Which jobs are shown and in which order, as the address of the page says. */
import type { Job } from "../api/types";
import { isFinal } from "./standing";

/** A choice of the state filter: a state, `active` or nothing. */
export function chosen(jobs: readonly Job[], state: string, text: string): Job[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return jobs.filter((job) => {
    const fits = state === "" || (state === "active" ? !isFinal(job) : job.state === state);
    const about = `${job.name} ${job.id} ${job.owner} ${job.target} ${job.reason}`.toLowerCase();
    return fits && words.every((word) => about.includes(word));
  });
}

export function selection(text: string | undefined): ReadonlySet<string> {
  return new Set((text ?? "").split(",").filter(Boolean));
}

export function formatSelection(ids: Iterable<string>): string {
  return [...ids].join(",");
}

/** Newest first; a job that both have is shown as the first list has it. */
export function merged(newest: readonly Job[], older: readonly Job[]): Job[] {
  const known = new Set(newest.map((job) => job.id));
  return [...newest, ...older.filter((job) => !known.has(job.id))];
}
