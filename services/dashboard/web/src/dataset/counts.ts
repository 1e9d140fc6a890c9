/** Sums over schedules, and over days. */
import type { Schedule, Statistics } from "../api/types";

const DAY_SEC = 86_400;

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

/** Moments and totals: a day stands for its whole length, the last one too. */
export function growth(days: Statistics["days"]): [number[], number[]] {
  const begins = days.map(({ day }) => Date.parse(day) / 1000);
  const totals = days.map(({ total }) => total);
  const end = begins.at(-1);
  return end === undefined ? [[], []] : [[...begins, end + DAY_SEC], [...totals, totals.at(-1) ?? 0]];
}
