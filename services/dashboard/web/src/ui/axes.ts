/** What charts share: colours, axes, how a best latency is drawn, and what legends read. */
import uPlot from "uplot";
import { apart, duration, shortLatency } from "../format";

const LABEL_PX = 90;
const DAY_SEC = 86_400;
const STEPS_DAYS = [1, 2, 7, 14, 28, 91, 182, 364];
const STEPS_SEC = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400, 172_800, 604_800];

export function plainAxis(colours: Palette, label: string): uPlot.Axis {
  return { label, stroke: colours.muted, grid: { stroke: colours.grid, width: 1 }, ticks: { stroke: colours.grid } };
}

/** Whole numbers. */
export function countAxis(colours: Palette, label: string): uPlot.Axis {
  const steps = [1, 2, 5].flatMap((step) => [0, 1, 2, 3, 4, 5, 6].map((power) => step * 10 ** power));
  return { ...plainAxis(colours, label), incrs: steps.sort((one, other) => one - other) };
}

/** Seconds, with a mark at round minutes and hours. */
export function timeAxis(colours: Palette, label: string): uPlot.Axis {
  return { ...plainAxis(colours, label), space: LABEL_PX, incrs: STEPS_SEC, values: (_u, ticks) => ticks.map(duration) };
}

/** Days, named by their dates; a chart of them keeps UTC. */
export function dayAxis(colours: Palette, label: string): uPlot.Axis {
  const name = (sec: number): string => new Date(sec * 1000).toLocaleDateString(undefined, { month: "short", day: "numeric", timeZone: "UTC" });
  return { ...plainAxis(colours, label), space: LABEL_PX, incrs: STEPS_DAYS.map((days) => days * DAY_SEC), values: (_u, ticks) => ticks.map(name) };
}

/** Latencies along the bottom, on a logarithmic scale: named at 1, 2 and 5 of every decade. */
export function latencyAxisBelow(colours: Palette, label: string): uPlot.Axis {
  const round = (tick: number): boolean => ["1", "2", "5"].includes(tick.toExponential(0).charAt(0));
  return {
    ...plainAxis(colours, label),
    filter: (_u, ticks) => ticks.map((tick) => (tick !== null && round(tick) ? tick : null)),
    values: (_u, ticks) => ticks.map((tick) => (tick === null ? "" : shortLatency(tick))),
  };
}

export function latencyAxis(colours: Palette, label = ""): uPlot.Axis {
  const axis = plainAxis(colours, label);
  if (label === "") delete axis.label;
  return { ...axis, size: 74, grid: { ...axis.grid, filter: (u, ticks) => drawn(u, ticks) }, ticks: { ...axis.ticks, filter: (u, ticks) => drawn(u, ticks) }, values: (_u, ticks) => named(ticks) };
}

/** On a logarithmic scale over several decades the lines between them would be a hatching. */
function drawn(u: uPlot, ticks: number[]): (number | null)[] {
  const { distr, min, max } = u.scales["y"] ?? {};
  if (distr !== 3 || (max ?? 1) / (min ?? 1) < 100) return ticks;
  return ticks.map((tick) => (tick.toExponential(0).startsWith("1") ? tick : null));
}

/** On a logarithmic scale some marks have no name. */
function named(ticks: readonly (number | null)[]): string[] {
  const words = apart(ticks.filter((tick) => tick !== null));
  return ticks.map((tick) => (tick === null ? "" : (words.shift() ?? "")));
}

/** Some room above and below, also for a line that is flat. */
export const LINEAR: uPlot.Scale = {
  range: (_u, low, high) => {
    const room = (high - low) * 0.08 || high * 0.1;
    return [Math.max(0, low - room), high + room];
  },
};

/** For latencies that lie decades apart: its marks count on from its ends, so those are round. */
export const LOGARITHMIC: uPlot.Scale = { distr: 3, range: (_u, low, high) => [roundDown(low), -roundDown(-high)] };

/** The next of 1, 2, 5, 10, ... below a positive number; of a negative one as far from nought. */
export function roundDown(value: number): number {
  const size = Math.abs(value);
  const decade = 10 ** Math.floor(Math.log10(size));
  const steps = [1, 2, 5, 10].map((step) => step * decade);
  return value > 0 ? (steps.findLast((step) => step <= size) ?? decade) : -(steps.find((step) => step >= size) ?? 10 * decade);
}

export type Palette = { text: string; muted: string; line: string; grid: string; series: readonly string[]; bad: string };

export function palette(element: Element): Palette {
  const styles = getComputedStyle(element);
  const colour = (name: string): string => styles.getPropertyValue(`--${name}`).trim();
  return {
    text: colour("text"),
    muted: colour("muted"),
    line: colour("accent"),
    grid: colour("line"),
    bad: colour("bad"),
    series: [1, 2, 3, 4, 5, 6].map((number) => colour(`series-${number}`)),
  };
}

const paths = uPlot.paths.stepped?.({ align: 1 });
export const stepped = paths ? { paths } : {};

type Words = (value: number | null) => string;
type Told = (u: uPlot, value: number, series: number, at: number | null) => string;

/** While nobody points, the last value of the line. */
export function lastOr(words: Words): Told {
  return (u, value, series, at) => words(at == null ? lastKnown(u.data[series] ?? []) : value);
}

/** While nobody points, nothing: for points that do not follow one another. */
export function pointed(words: Words): Told {
  return (_u, value, _series, at) => (at == null || value === null ? "" : words(value));
}

export function lastKnown(values: ArrayLike<number | null | undefined>): number | null {
  for (let at = values.length - 1; at >= 0; at -= 1) {
    const value = values[at];
    if (value != null) return value;
  }
  return null;
}
