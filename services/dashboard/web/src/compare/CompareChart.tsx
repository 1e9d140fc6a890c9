/** The weighted latency of every job against trials or seconds, one line each. */
import { type ReactNode, useMemo } from "react";
import type uPlot from "uplot";
import type { Point } from "../job/history";
import { duration, latency, plural } from "../format";
import { useChoices } from "../route";
import { countAxis, lastOr, latencyAxis, LINEAR, stepped, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { AxisSwitch } from "../ui/parts";
import { Empty } from "../ui/states";
import { type Compared, labels, overlay } from "./overlay";

export function CompareChart({ jobs }: { jobs: readonly Compared[] }): ReactNode {
  const [choices, choose] = useChoices();
  const bySeconds = choices["x"] === "seconds";
  const names = labels(jobs.map(({ job }) => job));
  const curves = useMemo(() => jobs.map(({ points }) => points), [jobs]);
  const data = useMemo<uPlot.AlignedData>(() => {
    const { x, y } = overlay(curves, (point) => (bySeconds ? point.sec : point.trials));
    return [x, ...y];
  }, [bySeconds, curves]);
  if (curves.every((points) => points.length === 0)) {
    return <Empty title="No curve yet">A job's begins when every task that matters has been timed once.</Empty>;
  }
  const label = jobs.map(({ points }, at) => way(names[at] ?? "", points)).join(" ");
  return (
    <figure>
      <AxisSwitch bySeconds={bySeconds} onChange={(seconds) => choose({ x: seconds ? "seconds" : "" })} />
      <Chart label={label} planKey={`${bySeconds}/${names.join()}`} plan={plan(bySeconds, names)} data={data} height={320} />
      <figcaption>The sum over tasks of latency times weight. {label}</figcaption>
    </figure>
  );
}

function way(name: string, points: readonly Point[]): string {
  const last = points.at(-1);
  return last === undefined ? `${name}: no curve yet.` : `${name}: ${latency(last.totalUs)} after ${plural(last.trials, "trial")}, ${duration(last.sec)}.`;
}

function plan(bySeconds: boolean, names: readonly string[]): Plan {
  return (colours) => ({
    scales: { x: { time: false }, y: LINEAR },
    axes: [bySeconds ? timeAxis(colours, "time since submit") : countAxis(colours, "trials"), latencyAxis(colours)],
    series: [
      { label: bySeconds ? "time" : "trials", value: lastOr((value) => (value === null ? "–" : bySeconds ? duration(value) : String(value))) },
      ...names.map((label, at) => ({
        label,
        ...stepped,
        stroke: colours.series[at % colours.series.length] ?? colours.line,
        width: 2,
        points: { show: true, size: 4 },
        value: lastOr(latency),
      })),
    ],
  });
}
