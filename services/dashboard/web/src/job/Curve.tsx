/** The weighted latency of the whole model against trials or seconds. */
import { useMemo, type ReactNode } from "react";
import type uPlot from "uplot";
import type { Job, Round, Task } from "../api/types";
import { duration, latency, plural } from "../format";
import { engines } from "../jobs/standing";
import { useChoose, useRoute } from "../route";
import { countAxis, latencyAxis, LINEAR, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { AxisSwitch } from "../ui/parts";
import { Empty } from "../ui/states";
import { stepped } from "../ui/steps";
import { curve, type Point } from "./history";

/** A line farther away than so many times the curve's fall would press it flat; it is told in words. */
const FARTHEST = 3;
const LEAST_FALL = 0.05;

export function Curve({ job, rounds, tasks }: { job: Job; rounds: readonly Round[]; tasks: readonly Task[] }): ReactNode {
  const bySeconds = useRoute().choices["x"] === "seconds";
  const choose = useChoose();
  const points = useMemo(() => curve(rounds, tasks, job.created_at), [rounds, tasks, job.created_at]);
  const { untuned, onnxruntime, tuned } = engines(job);
  const first = points[0];
  const last = points.at(-1);
  const near = (us: number | undefined): us is number => us !== undefined && first !== undefined && last !== undefined && isNear(us, first, last);
  const levels = { onnxruntime, "tuned, whole model": tuned, untuned };
  const lines = Object.entries(levels).filter((entry): entry is [string, number] => near(entry[1]));
  const far = Object.entries(levels).filter(([, us]) => us !== undefined && !near(us));
  const data = useMemo<uPlot.AlignedData>(() => {
    const x = points.map((point) => (bySeconds ? point.sec : point.trials));
    const y = points.map((point) => point.totalUs);
    return [x, y, ...lines.map(([, us]) => x.map(() => us))];
  }, [points, bySeconds, JSON.stringify(lines)]);

  if (first === undefined || last === undefined) {
    return <Empty title="No curve yet">It begins when every task that matters has been timed once.</Empty>;
  }
  const way = first.totalUs > last.totalUs ? `fell from ${latency(first.totalUs)} to ${latency(last.totalUs)}` : `stayed at ${latency(last.totalUs)}`;
  const label = `Latency ${way} in ${plural(last.trials, "trial")} and ${duration(last.sec)}.`;
  const warm = first.trials === 0 ? "It begins with what the dataset knew of every task. " : "";
  const names = lines.map(([name]) => name);
  return (
    <figure>
      <AxisSwitch bySeconds={bySeconds} onChange={(seconds) => choose({ x: seconds ? "seconds" : "" })} />
      <Chart label={label} planKey={`${bySeconds}/${names.join()}`} plan={curvePlan(bySeconds, names)} data={data} />
      <figcaption>
        {label} {warm}
        {far.length > 0 && `Off the picture: ${far.map(([name, us]) => `${name} at ${latency(us)}`).join(", ")}. `}
        Drag to zoom, double-click to see all.
      </figcaption>
    </figure>
  );
}

function isNear(us: number, first: Point, last: Point): boolean {
  const room = FARTHEST * Math.max(first.totalUs - last.totalUs, LEAST_FALL * first.totalUs);
  return us < first.totalUs + room && us > last.totalUs - room;
}

function curvePlan(bySeconds: boolean, levels: readonly string[]): Plan {
  return (colours) => {
    return {
      scales: { x: { time: false }, y: LINEAR },
      legend: { live: true },
      axes: [bySeconds ? timeAxis(colours, "time since submit") : countAxis(colours, "trials"), latencyAxis(colours)],
      series: [
        { label: bySeconds ? "time" : "trials", value: (_u, value) => (value === null ? "–" : bySeconds ? duration(value) : String(value)) },
        { label: "sum over tasks", ...stepped, stroke: colours.line, width: 2, points: { show: false }, value: (_u, value) => latency(value) },
        ...levels.map((name, at) => ({
          label: name,
          stroke: colours.series[(at + 1) % colours.series.length] ?? colours.muted,
          width: 1,
          dash: [6, 4],
          points: { show: false },
          value: (_u: uPlot, value: number | null) => latency(value),
        })),
      ],
    };
  };
}
