/** What the list tells of a job, from its state, progress and report. */
import type { Job, JobState } from "../api/types";
import { count } from "../format";

export const FINAL: readonly JobState[] = ["done", "failed", "cancelled"];

export const isFinal = (job: Job): boolean => FINAL.includes(job.state);
export const canPause = (job: Job): boolean => !isFinal(job) && job.state !== "paused";
/** Whether it measures candidates: others answer from what is known. */
export const searches = (job: Job): boolean => (job.options.mode ?? "search") === "search";
/** Whether it takes more trials. */
export const canResume = (job: Job): boolean => searches(job) && (job.state === "paused" || job.state === "done");

export type Level = NonNullable<Job["verdict"]>["level"];
export type Engines = { untuned?: number; tuned?: number; onnxruntime?: number };

/** Whole-model medians that the finish measured, in microseconds. */
export function engines(job: Job): Engines {
  const timed = Object.entries(job.report?.latency_us ?? {}).flatMap(([engine, time]) => (time === null ? [] : [[engine, time.median]]));
  return Object.fromEntries(timed) as Engines;
}

/** The measured latency of the tuned model; before the finish the sum of its tasks' best. */
export function bestUs(job: Job): number | null {
  return engines(job).tuned ?? job.progress.estimated_us;
}

/** Against the untuned model, once both were measured whole. */
export function speedUp(job: Job): number | null {
  const { untuned, tuned } = engines(job);
  return untuned !== undefined && tuned ? untuned / tuned : null;
}

/** Against onnxruntime, once both were measured whole. */
export function versusOnnxruntime(job: Job): number | null {
  const { onnxruntime, tuned } = engines(job);
  return onnxruntime !== undefined && tuned ? onnxruntime / tuned : null;
}

/** How well a job did: the server's verdict, or what its own figures say. */
export function level(job: Job): Level {
  if (job.verdict) return job.verdict.level;
  const factor = versusOnnxruntime(job);
  return factor === null ? "none" : factor >= 1 ? "good" : "poor";
}

/** Why it waits or ended, or its step in the server's words; empty where its state says all. */
export function explanation(job: Job): string {
  return job.waiting_because || job.ended_because || (job.progress.step && job.verdict?.summary) || "";
}

/** A state as it is marked: what ended slower than onnxruntime is no success. */
export function mark(job: Job): string {
  return job.state === "done" && ["poor", "fair"].includes(level(job)) ? `done-${level(job)}` : job.state;
}

/** Whether it goes on while its trials are worth their seconds, without another budget. */
export const isAuto = (job: Job): boolean => job.trials === null && job.minutes === null;

/** Its budget in trials; of a job that ends by itself what is expected of it. */
export function expectedTrials(job: Job): number | null {
  return job.trials ?? (isAuto(job) && job.outlook ? job.progress.trials + job.outlook.trials : null);
}

/** Seconds until the budget is spent, at the pace so far; null where there is no pace to go by. */
export function secondsLeft(job: Job, nowSec: number): number | null {
  if (job.state !== "tuning" || job.started_at === null) return null;
  const { trials } = job.progress;
  const pace = trials > 0 ? (nowSec - job.started_at) / trials : null;
  const budget = expectedTrials(job);
  const byTrials = pace === null || budget === null ? null : Math.max(0, budget - trials) * pace;
  const byClock = job.minutes === null ? null : Math.max(0, job.created_at + job.minutes * 60 - nowSec);
  if (byTrials === null || byClock === null) return byTrials ?? byClock;
  return Math.min(byTrials, byClock);
}

/** "16 of 200", or "16" where trials do not limit a job, or none was asked for. */
export function spentOf(job: Job): string {
  return !job.trials ? count(job.progress.trials) : `${count(job.progress.trials)} of ${count(job.trials)}`;
}

export function failureCount(job: Job): number {
  return Object.values(job.progress.failures).reduce((sum, count) => sum + count, 0);
}
