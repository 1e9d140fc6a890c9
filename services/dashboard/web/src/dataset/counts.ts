/** Sums over schedules. */
import type { Schedule } from "../api/types";

export type TargetCount = { target: string; schedules: number; workloads: number };

/** The targets with the most schedules first. */
export function byTarget(schedules: readonly Schedule[]): TargetCount[] {
  const groups = new Map<string, Schedule[]>();
  for (const schedule of schedules) {
    groups.set(schedule.target, [...(groups.get(schedule.target) ?? []), schedule]);
  }
  return [...groups]
    .map(([target, own]) => ({ target, schedules: own.length, workloads: new Set(own.map((row) => row.workload)).size }))
    .sort((one, other) => other.schedules - one.schedules);
}

export function fitting(schedules: readonly Schedule[], target: string, text: string): Schedule[] {
  const word = text.trim().toLowerCase();
  return schedules.filter(
    (row) => (target === "" || row.target === target) && `${row.workload_name} ${row.workload}`.toLowerCase().includes(word),
  );
}
