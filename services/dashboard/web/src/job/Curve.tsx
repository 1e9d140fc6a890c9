/** The weighted latency of the whole model against trials or seconds, beside what the engines were timed at. */
import { useMemo, type ReactNode } from "react";
import type uPlot from "uplot";
import type { Job, Round, Task } from "../api/types";
import { duration, latency, plural } from "../format";
import { engines, isFinal } from "../jobs/standing";
import { useChoose, useRoute } from "../route";
import { countAxis, latencyAxis, LINEAR, LOGARITHMIC, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { lastOr } from "../ui/legend";
import { AxisSwitch } from "../ui/parts";
import { Empty } from "../ui/states";
import { stepped } from "../ui/steps";
import { course, unfinished, type Course } from "./history";
import { picture, type Picture } from "./picture";

/** More points than that are a line. */
const MOST_DOTS = 40;

export function Curve({ job, rounds, tasks }: { job: Job; rounds: readonly Round[]; tasks: readonly Task[] }): ReactNode {
  const bySeconds = useRoute().choices["x"] === "seconds";
  const choose = useChoose();
  const isWhole = job.progress.estimated_us !== null;
  const found = useMemo(() => {
    const known = course(rounds, tasks, job.created_at);
    return isWhole ? known : unfinished(known);
  }, [rounds, tasks, job.created_at, isWhole]);
  const shown = useMemo(() => picture(found, engines(job), (point) => (bySeconds ? point.sec : point.trials)), [found, bySeconds, job.report]);
  const data = useMemo<uPlot.AlignedData>(
    () => (shown === null ? [[]] : aligned(shown)),
    [shown],
  );
  if (shown === null) return isFinal(job) ? <Empty title="No curve">No candidate was timed.</Empty> : <Empty title="No curve yet">It begins when the first candidate is timed.</Empty>;
  const label = courseWords(found, tasks);
  return (
    <figure>
      <AxisSwitch bySeconds={bySeconds} onChange={(seconds) => choose({ x: seconds ? "seconds" : "" })} />
      <Chart label={label} planKey={planKey(shown, bySeconds)} plan={curvePlan(bySeconds, shown)} data={data} height={shown.logarithmic ? 340 : 280} />
      <figcaption>
        {label} {shown.logarithmic && "The scale is logarithmic. "}
        Drag to zoom, double-click to see all; a click on a name below the chart leaves its line out.
      </figcaption>
    </figure>
  );
}

function aligned({ x, whole, partial, levels }: Picture): uPlot.AlignedData {
  return [x, ...[whole, partial].filter((line) => line !== null), ...levels.map(({ us }) => x.map(() => us))];
}

/** What the picture shows, in words. */
function courseWords({ partial, whole }: Course, tasks: readonly Task[]): string {
  const [first, last] = [whole[0], whole.at(-1)];
  const timed = tasks.filter((task) => task.latency_us !== null).length;
  if (first === undefined || last === undefined) return `${timed} of ${plural(tasks.length, "task")} timed after ${plural(partial.at(-1)?.trials ?? 0, "trial")}: the dashed line is the sum over those, it rises with every task that joins.`;
  const way = first.totalUs > last.totalUs ? `fell from ${latency(first.totalUs)} to ${latency(last.totalUs)}` : `stayed at ${latency(last.totalUs)}`;
  const before = first.trials === 0 ? " It begins with what the dataset knew of every task." : partial.length > 0 ? ` Every task was timed after ${plural(first.trials, "trial")}; dashed before that: the sum over those that were.` : "";
  return `Latency ${way} in ${plural(last.trials, "trial")} and ${duration(last.sec)}.${before}${timed < tasks.length ? ` Not in the sum: ${plural(tasks.length - timed, "task")} too small to be timed.` : ""}`;
}

function planKey({ levels, logarithmic, partial, whole }: Picture, bySeconds: boolean): string {
  return [bySeconds, logarithmic, whole && hasDots(whole), partial && hasDots(partial), ...levels.map(({ name }) => name)].join();
}

/** A line of one point has no length: few points are drawn as such. */
function hasDots(values: readonly (number | null)[]): boolean {
  return values.filter((value) => value !== null).length <= MOST_DOTS;
}

function curvePlan(bySeconds: boolean, { levels, logarithmic, partial, whole }: Picture): Plan {
  return (colours) => {
    const line = { ...stepped, stroke: colours.line, width: 2, value: lastOr(latency) };
    const dots = { size: 6, fill: colours.line, stroke: colours.line };
    const sum = whole && { ...line, label: "sum over tasks", points: { ...dots, show: hasDots(whole) } };
    const before = partial && { ...line, label: "sum over the tasks timed so far", width: 1.5, dash: [3, 4], points: { ...dots, size: 5, show: hasDots(partial) } };
    return {
      scales: { x: { time: false }, y: logarithmic ? LOGARITHMIC : LINEAR },
      axes: [bySeconds ? timeAxis(colours, "time since submit") : countAxis(colours, "trials"), latencyAxis(colours)],
      series: [
        { label: bySeconds ? "time" : "trials", value: lastOr((value) => (value === null ? "–" : bySeconds ? duration(value) : String(value))) },
        ...[sum, before].filter((series) => series !== null),
        ...levels.map(({ name }, at) => ({
          label: name,
          stroke: colours.series[(at + 1) % colours.series.length] ?? colours.muted,
          width: 1.5,
          dash: [6, 4],
          points: { show: false },
          value: lastOr(latency),
        })),
      ],
    };
  };
}
