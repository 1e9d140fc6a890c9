/** Which jobs are shown, in which order, and what tells those of one name apart. */
import type { Job, OptionName } from "../api/types";
import { formatValue } from "./options";

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

/** As they are typed. */
export const formatLabels = (job: Job): string => Object.entries(job.labels).map(([key, value]) => (value ? `${key}=${value}` : key)).join(", ");

/** By id: seed, trials and options in which a job is not as all others of its name. */
export function apart(jobs: readonly Job[]): ReadonlyMap<string, string> {
  const groups = new Map<string, Job[]>();
  for (const job of jobs) groups.set(job.name, [...(groups.get(job.name) ?? []), job]);
  return new Map([...groups.values()].flatMap((alike) => alike.map((job): [string, string] => [job.id, words(job, alike)])));
}

function words(job: Job, alike: readonly Job[]): string {
  const differs = (of: (job: Job) => unknown): boolean => new Set(alike.map((other) => JSON.stringify(of(other) ?? null))).size > 1;
  const options = [...new Set(alike.flatMap((other) => Object.keys(other.options) as OptionName[]))].sort();
  return [
    ...(differs(({ seed }) => seed) ? [`seed ${job.seed}`] : []),
    ...options.filter((name) => differs((other) => other.options[name])).map((name) => `${name} ${formatValue(job.options[name]) || "as usual"}`),
  ].join(" · ");
}
