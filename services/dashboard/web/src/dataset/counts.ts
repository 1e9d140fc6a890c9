/** Sums over schedules, and over days. */
import type { Query } from "../api/client";
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

/** The fields of a look-up: a word such as 1x56x56x64 is a shape, float32 is a type, another is the operator. */
export function lookupQuery(text: string, target: string): Query {
  const words = text.trim().split(/\s+/);
  const shape = words.filter((word) => /^\d+(x\d+)*$/.test(word));
  const dtype = words.find((word) => /^(bool|bfloat16|(float|u?int)\d+)$/.test(word));
  return { operator: words.find((word) => word !== dtype && !shape.includes(word)), shape, dtype, target };
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
