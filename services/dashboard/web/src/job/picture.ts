/** What the chart of a job draws: its curve, and the engines' whole-model times as level lines where those compare. */
import type { Engines } from "../jobs/standing";
import type { Point } from "./history";

export type Level = { name: string; us: number };
/** `levels` have a line; what lies `beyond` would flatten the curve, and is told in words. */
export type Picture = { x: number[]; sums: (number | null)[]; levels: Level[]; beyond: Level[]; logarithmic: boolean };

/** Latencies that lie farther apart than so many times are read on a logarithmic scale, and do not belong on the curve's. */
const APART = 4;

/** Null: there is nothing to draw. From nought on, so that the time before the first point is seen. */
export function picture(points: readonly Point[], engines: Engines, place: (point: Point) => number): Picture | null {
  if (points.length === 0) return null;
  const drawn = points.map(({ totalUs }) => totalUs);
  const [least, most] = [Math.min(...drawn), Math.max(...drawn)];
  const fits = ({ us }: Level): boolean => us * APART >= least && us <= most * APART;
  const levels = named(engines).filter(fits);
  const last = Math.max(...points.map(place));
  const x = [...new Set([0, ...points.map(place), last === 0 ? 1 : last])].sort((one, other) => one - other);
  return {
    x,
    sums: along(x, points, place),
    levels,
    beyond: named(engines).filter((level) => !fits(level)),
    logarithmic: isWide([...drawn, ...levels.map(({ us }) => us)]),
  };
}

function named({ onnxruntime, tuned, untuned }: Engines): Level[] {
  const all = { onnxruntime, "tuned, whole model": tuned, untuned };
  return Object.entries(all).flatMap(([name, us]) => (us === undefined ? [] : [{ name, us }]));
}

/** The last value at every place that has one. */
function along(x: readonly number[], points: readonly Point[], place: (point: Point) => number): (number | null)[] {
  const known = new Map(points.map((point) => [place(point), point.totalUs]));
  return x.map((where) => known.get(where) ?? null);
}

function isWide(us: readonly number[]): boolean {
  return Math.min(...us) > 0 && Math.max(...us) / Math.min(...us) > APART;
}
