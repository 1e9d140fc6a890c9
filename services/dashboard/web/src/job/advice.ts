/** Why a job waits or ended, with the command that helps, and what a reader of its figures must know. */
import type { Job } from "../api/types";

/** `command` can be typed as it stands. */
export type Advice = { what: string; help: string; command: string };

/** As mallorn/core/format_text.py reads them. */
const PROGRAM = /^(mallorn|pip|python|less|df|ls|mkdir) /;
const QUOTED = /`((?:mallorn|pip|python)\b[^`]*)`/;
const LONG_SEC = 60;

export function adviceOf(job: Job): Advice {
  return { what: job.waiting_because || job.ended_because, help: job.hint, command: commandIn(job.hint).replace(/\bJOB\b/, job.id) };
}

export function commandIn(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return QUOTED.exec(text)?.[1] ?? lines.find((line) => PROGRAM.test(line))?.split("   (")[0] ?? "";
}

/** Why a job does not move though nobody asked it to stand still; null: it moves, or has ended. */
export function obstacle(job: Job, nowSec: number): Advice | null {
  if (job.waiting_because !== "" && job.cause !== "owner") return adviceOf(job);
  if (job.state !== "queued" || nowSec - job.created_at < LONG_SEC) return null;
  return { what: "No worker has taken it for more than a minute.", help: "See which there are; each takes one job's work at a time.", command: "mallorn workers" };
}

export type Remark = { what: string; hint: string };

export function remarks(job: Job): Remark[] {
  return [...warned(job), ...notDone(job), ...conditions(job)];
}

function warned(job: Job): Remark[] {
  return job.warnings.map(({ source, message, hint, count }) => ({ what: `${source}: ${message}${count > 1 ? ` (${count} times)` : ""}`, hint }));
}

function notDone(job: Job): Remark[] {
  return (job.report?.skipped_steps ?? []).map(({ step, reason, hint }) => ({ what: `Not done: ${step}, ${reason}`, hint }));
}

function conditions(job: Job): Remark[] {
  const note = job.report?.conditions?.note ?? "";
  const isTold = job.state === "done" && job.verdict?.summary.includes(note.replace(/\.$/, ""));
  return note === "" || isTold ? [] : [{ what: note, hint: "" }];
}

/** Share of what the machine computes that the tuned model reaches; null where it is not measured, or its tasks' share is told, as the verdict does. */
export function peakShare(job: Job): number | null {
  return job.outlook?.limit_us == null ? (job.report?.limits?.peak_share ?? null) : null;
}
