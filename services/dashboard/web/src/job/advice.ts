/** What a job's reason says: what happened, what helps, and the command in it, if there is one. */
import type { Job } from "../api/types";

/** `command` can be typed as it stands. */
export type Advice = { what: string; help: string; command: string };

/** As mallorn/core/text.py reads them. */
const PROGRAM = /^(mallorn|pip|python|less|df|ls|mkdir) /;
const QUOTED = /`((?:mallorn|pip|python)\b[^`]*)`/;
const LONG_SEC = 60;
const BEFORE_THE_FINISH: readonly string[] = ["queued", "importing", "tuning"];

export function adviceOf(job: Job): Advice {
  const [what = "", ...rest] = job.reason.trim().split("\n");
  return { what, help: rest.join("\n"), command: commandIn(job.reason).replace(/\bJOB\b/, job.id) };
}

export function commandIn(text: string): string {
  const lines = text.split("\n").map((line) => line.trim());
  return QUOTED.exec(text)?.[1] ?? lines.find((line) => PROGRAM.test(line))?.split("   (")[0] ?? "";
}

/** Why a job does not move though nobody asked it to stand still; null: it moves, or has ended. */
export function obstacle(job: Job, nowSec: number): Advice | null {
  const advice = adviceOf(job);
  if (BEFORE_THE_FINISH.includes(job.state) && advice.what !== "") return advice;
  if ((job.state === "paused" || job.state === "finishing") && advice.help + advice.command !== "") return advice;
  if (job.state !== "queued" || nowSec - job.created_at < LONG_SEC) return null;
  return { what: "No worker has taken it for more than a minute.", help: "See which there are; each takes one job's work at a time.", command: "mallorn workers" };
}
