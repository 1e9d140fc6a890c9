/** The weighted latency of the whole model against trials or seconds, beside what the engines were timed at. */
import { type ReactNode, useMemo } from "react";
import type uPlot from "uplot";
import type { Job, Round, Task } from "../api/types";
import { duration, latency, plural } from "../format";
import { engines, isFinal } from "../jobs/standing";
import { useChoices } from "../route";
import { countAxis, lastOr, latencyAxis, LINEAR, LOGARITHMIC, stepped, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { AxisSwitch } from "../ui/parts";
import { Empty } from "../ui/states";
import { curve, type Point } from "./history";
import { picture, type Picture } from "./picture";

/** More points than that are a line. */
const MOST_DOTS = 40;

export function Curve({ job, rounds, tasks }: { job: Job; rounds: readonly Round[]; tasks: readonly Task[] }): ReactNode {
  const [choices, choose] = useChoices();
  const bySeconds = choices["x"] === "seconds";
  const isWhole = isFinal(job) ? rounds.length > 0 : job.progress.estimated_us !== null;
  const found = useMemo(() => (isWhole ? curve(rounds, tasks, job.created_at) : []), [rounds, tasks, job.created_at, isWhole]);
  const shown = useMemo(() => picture(found, engines(job), (point) => (bySeconds ? point.sec : point.trials)), [found, bySeconds, job.report]);
  const data = useMemo<uPlot.AlignedData>(
    () => (shown === null ? [[]] : aligned(shown)),
    [shown],
  );
  if (shown === null) return <NoCurve job={job} tasks={tasks} />;
  const label = curveWords(found, tasks);
  return (
    <figure>
      <AxisSwitch bySeconds={bySeconds} onChange={(seconds) => choose({ x: seconds ? "seconds" : "" })} />
      <Chart label={label} planKey={planKey(shown, bySeconds)} plan={curvePlan(bySeconds, shown)} data={data} height={shown.logarithmic ? 340 : 280} />
      <figcaption>
        {label} {shown.beyond.length > 0 && `Off the picture: ${shown.beyond.map(({ name, us }) => `${name}, ${latency(us)}`).join("; ")}. `}
        {shown.logarithmic && "The scale is logarithmic. "}
        Drag to zoom, double-click to see all; a click on a name below the chart leaves its line out.
      </figcaption>
    </figure>
  );
}

function NoCurve({ job, tasks }: { job: Job; tasks: readonly Task[] }): ReactNode {
  if (isFinal(job)) return <Empty title="No curve">No candidate was timed.</Empty>;
  if (tasks.length === 0) return <Empty title="No curve yet">It begins when every task was timed.</Empty>;
  return <Empty title="No curve yet">{`${timedOf(tasks)} of ${plural(tasks.length, "task")} timed: it begins when all are.`}</Empty>;
}

function aligned({ x, sums, levels }: Picture): uPlot.AlignedData {
  return [x, sums, ...levels.map(({ us }) => x.map(() => us))];
}

const timedOf = (tasks: readonly Task[]): number => tasks.filter((task) => task.latency_us !== null).length;

/** What the picture shows, in words. */
function curveWords(points: readonly Point[], tasks: readonly Task[]): string {
  const [first, last] = [points[0], points.at(-1)];
  if (first === undefined || last === undefined) return "";
  const left = tasks.length - timedOf(tasks);
  const way = first.totalUs > last.totalUs ? `fell from ${latency(first.totalUs)} to ${latency(last.totalUs)}` : `stayed at ${latency(last.totalUs)}`;
  const before = first.trials === 0 ? " It begins with what the dataset knew of every task." : ` Every task was timed after ${plural(first.trials, "trial")}.`;
  return `Latency ${way} in ${plural(last.trials, "trial")} and ${duration(last.sec)}.${before}${left > 0 ? ` Not in the sum: ${plural(left, "task")} too small to be timed.` : ""}`;
}

function planKey({ levels, logarithmic, sums }: Picture, bySeconds: boolean): string {
  return [bySeconds, logarithmic, hasDots(sums), ...levels.map(({ name }) => name)].join();
}

/** A line of one point has no length: few points are drawn as such. */
function hasDots(values: readonly (number | null)[]): boolean {
  return values.filter((value) => value !== null).length <= MOST_DOTS;
}

function curvePlan(bySeconds: boolean, { levels, logarithmic, sums }: Picture): Plan {
  return (colours) => ({
    scales: { x: { time: false }, y: logarithmic ? LOGARITHMIC : LINEAR },
    axes: [bySeconds ? timeAxis(colours, "time since submit") : countAxis(colours, "trials"), latencyAxis(colours)],
    series: [
      { label: bySeconds ? "time" : "trials", value: lastOr((value) => (value === null ? "–" : bySeconds ? duration(value) : String(value))) },
      { ...stepped, label: "sum over tasks", stroke: colours.line, width: 2, value: lastOr(latency), points: { size: 6, fill: colours.line, stroke: colours.line, show: hasDots(sums) } },
      ...levels.map(({ name }, at) => ({
        label: name,
        stroke: colours.series[(at + 1) % colours.series.length] ?? colours.muted,
        width: 1.5,
        dash: [6, 4],
        points: { show: false },
        value: lastOr(latency),
      })),
    ],
  });
}
