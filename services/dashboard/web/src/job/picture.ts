/** What the chart of a job draws: its course, and the engines' whole-model times as level lines. */
import type { Engines } from "../jobs/standing";
import type { Course, Point } from "./history";

type Line = (number | null)[];
export type Level = { name: string; us: number };
/** `partial` is null where every task had a time before the first trial, `whole` where some have none yet. */
export type Picture = { x: number[]; partial: Line | null; whole: Line | null; levels: Level[]; logarithmic: boolean };

/** Latencies that lie farther apart than so many times are read on a logarithmic scale. */
const APART = 4;

/** Null: there is nothing to draw. From nought on, so that the time before the first point is seen. */
export function picture(course: Course, engines: Engines, place: (point: Point) => number): Picture | null {
  const levels = named(engines);
  const points = [...course.partial, ...course.whole];
  if (points.length === 0) return null;
  const last = Math.max(...points.map(place));
  const x = [...new Set([0, ...points.map(place), last === 0 ? 1 : last])].sort((one, other) => one - other);
  const meeting = course.whole.slice(0, 1);
  return {
    x,
    partial: course.partial.length === 0 ? null : along(x, [...course.partial, ...meeting], place),
    whole: course.whole.length === 0 ? null : along(x, course.whole, place),
    levels,
    logarithmic: isWide([...points.map((point) => point.totalUs), ...levels.map(({ us }) => us)]),
  };
}

function named({ onnxruntime, tuned, untuned }: Engines): Level[] {
  const all = { onnxruntime, "tuned, whole model": tuned, untuned };
  return Object.entries(all).flatMap(([name, us]) => (us === undefined ? [] : [{ name, us }]));
}

/** The last value at every place that has one. */
function along(x: readonly number[], points: readonly Point[], place: (point: Point) => number): Line {
  const known = new Map(points.map((point) => [place(point), point.totalUs]));
  return x.map((where) => known.get(where) ?? null);
}

function isWide(us: readonly number[]): boolean {
  return Math.min(...us) > 0 && Math.max(...us) / Math.min(...us) > APART;
}
