/** What a reader of a job's figures must know, from its warnings and the report of its finish. */
import type { Job } from "../api/types";

export type Remark = { what: string; hint: string };

export function remarks(job: Job): Remark[] {
  return [...warned(job), ...notDone(job), ...conditions(job)];
}

function warned(job: Job): Remark[] {
  return job.warnings.map(({ source, message, hint, count }) => ({ what: `${source}: ${message}${count > 1 ? ` (${count} times)` : ""}`, hint }));
}

function notDone(job: Job): Remark[] {
  return (job.report?.not_done ?? []).map(({ step, why, hint }) => ({ what: `Not done: ${step}, ${why}`, hint }));
}

function conditions(job: Job): Remark[] {
  const note = job.report?.conditions?.note;
  return note ? [{ what: note, hint: "" }] : [];
}

/** Share of what the machine computes that the tuned model reaches; null where it is not measured, or its tasks' share is told, as the verdict does. */
export function peakShare(job: Job): number | null {
  return job.outlook?.limit_us == null ? (job.report?.limits?.peak_share ?? null) : null;
}
