/** Which schedules of a task are shown. */
import type { Schedule } from "../api/types";
import { versus } from "../format";

/** The one that was chosen, else the job's own, else the fastest; and another one beside it, if any. */
export function chosenPair(
  schedules: readonly Schedule[],
  jobId: string,
  id: string | undefined,
  besideId: string | undefined,
): { shown: Schedule; other: Schedule | null } {
  const named = (wanted: string | undefined): Schedule | undefined => schedules.find((schedule) => String(schedule.id) === wanted);
  const shown = named(id) ?? schedules.find((schedule) => schedule.job_id === jobId) ?? schedules[0];
  if (shown === undefined) throw new Error("there is no schedule to show");
  const other = named(besideId);
  return { shown, other: other === shown ? null : (other ?? null) };
}

/** How two compare, in words; times of different measuring contexts do not. */
export function faster(shown: Schedule, other: Schedule): string {
  if (shown.context_id !== other.context_id) return "They were measured in different contexts: their times do not compare.";
  if (shown.low_us <= other.high_us && other.low_us <= shown.high_us) return "Their confidence intervals overlap.";
  return `It is ${versus(other.latency_us / shown.latency_us)} than #${other.id}.`;
}
