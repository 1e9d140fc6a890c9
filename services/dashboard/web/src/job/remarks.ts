/** What a reader of a job's figures must know, from its warnings and the report of its finish. */
import type { Job } from "../api/types";

export type Remark = { what: string; hint: string };

export function remarks(job: Job): Remark[] {
  return [...warned(job), ...notDone(job), ...conditions(job)];
}

function warned(job: Job): Remark[] {
  return (job.warnings ?? []).map(({ source, message, hint, count }) => ({ what: `${source}: ${message}${count > 1 ? ` (${count} times)` : ""}`, hint }));
}

function notDone(job: Job): Remark[] {
  const steps = job.report?.["not_done"];
  if (!Array.isArray(steps)) return [];
  return (steps as { step?: string; why?: string; hint?: string }[]).map(({ step, why, hint }) => ({ what: `Not done: ${step ?? "a step"}, ${why ?? "for a reason that was not kept"}`, hint: hint ?? "" }));
}

function conditions(job: Job): Remark[] {
  const { note } = (job.report?.["conditions"] ?? {}) as { note?: string };
  return note ? [{ what: note, hint: "" }] : [];
}

/** Share of what the machine computes that the tuned model reaches; null where that was not measured. */
export function peakShare(job: Job): number | null {
  const { peak_share: share } = (job.report?.["limits"] ?? {}) as { peak_share?: unknown };
  return typeof share === "number" ? share : null;
}
