/** Every trial as a point, and what the cost model thought of candidates beside what became of them. */
import { type ReactNode, useMemo, useRef } from "react";
import type uPlot from "uplot";
import type { MeasuredRecord, Round } from "../api/types";
import { duration, latency, percent, plural } from "../format";
import { lastOr, latencyAxis, latencyAxisBelow, LOGARITHMIC, pointed, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { pairs, pairsInOrder, scatter, type Scatter } from "./measurements";
import { Empty } from "../ui/states";

export function ScatterChart({ records, createdAt }: { records: readonly MeasuredRecord[]; createdAt: number }): ReactNode {
  const points = useMemo(() => scatter(records, createdAt), [records, createdAt]);
  const latest = useRef(points);
  latest.current = points;
  const data = useMemo<uPlot.AlignedData>(
    () => [points.x, points.best, points.failures, ...points.origins.map((origin) => origin.us)],
    [points],
  );
  const names = points.origins.map((origin) => origin.name);
  const failed = points.failures.filter((us) => us !== null).length;
  const label = `${plural(points.x.length, "trial")}, ${failed} failed, best ${latency(points.best.at(-1) ?? null)}.`;
  return (
    <figure>
      <Chart label={label} planKey={names.join()} plan={scatterPlan(names, () => latest.current)} data={data} height={320} />
      <figcaption>{label} Colours say whose idea it was; failures stand on the top line; bars are the spread of the repeats.</figcaption>
    </figure>
  );
}

function scatterPlan(names: readonly string[], points: () => Scatter): Plan {
  return (colours) => ({
    scales: { x: { time: false }, y: LOGARITHMIC },
    axes: [timeAxis(colours, "time since submit"), latencyAxis(colours)],
    hooks: { drawClear: [(u) => drawSpread(u, points(), colours.grid)] },
    series: [
      { label: "time", value: pointed(duration) },
      { label: "best", stroke: colours.muted, width: 1.5, points: { show: false }, value: lastOr(latency) },
      { ...dots("failed", colours.bad), value: pointed(() => "yes") },
      ...names.map((name, at) => dots(name, colours.series[at % colours.series.length] ?? colours.line)),
    ],
  });
}

/** Points that no line joins. */
function dots(label: string, colour: string): uPlot.Series {
  return {
    label,
    stroke: colour,
    fill: colour,
    paths: () => null,
    points: { show: true, size: 5, fill: colour, stroke: colour },
    value: pointed(latency),
  };
}

function drawSpread(u: uPlot, { x, spread }: Scatter, colour: string): void {
  u.ctx.save();
  u.ctx.strokeStyle = colour;
  u.ctx.beginPath();
  spread.forEach((ends, at) => {
    const sec = x[at];
    if (ends === null || sec === undefined) return;
    const left = u.valToPos(sec, "x", true);
    u.ctx.moveTo(left, u.valToPos(ends[0], "y", true));
    u.ctx.lineTo(left, u.valToPos(ends[1], "y", true));
  });
  u.ctx.stroke();
  u.ctx.restore();
}

export function Prediction({ records, rounds }: { records: readonly MeasuredRecord[]; rounds: readonly Round[] }): ReactNode {
  const found = useMemo(() => pairs(records, rounds), [records, rounds]);
  const inOrder = useMemo(() => pairsInOrder(records), [records]);
  const data = useMemo<uPlot.AlignedData>(() => [found.map((pair) => pair.predictedUs), found.map((pair) => pair.us)], [found]);
  if (found.length === 0) return <Empty title="No predictions yet">The first rounds are searched without a trained cost model.</Empty>;
  const label = `${plural(found.length, "candidate")} with a prediction${inOrder === null ? "" : `, ${percent(inOrder)} of the pairs within a round in order`}.`;
  return (
    <figure>
      <Chart label={label} planKey="prediction" plan={plan} data={data} />
      <figcaption>{label} A half is chance. On the line prediction and measurement are the same; a model is asked for the order, not for the time.</figcaption>
    </figure>
  );
}

const plan: Plan = (colours) => ({
  scales: { x: { ...LOGARITHMIC, time: false }, y: LOGARITHMIC },
  hooks: { drawClear: [(u) => drawSame(u, colours.grid)] },
  axes: [latencyAxisBelow(colours, "predicted"), latencyAxis(colours, "measured")],
  series: [{ label: "predicted", value: pointed(latency) }, dots("measured", colours.series[0] ?? colours.line)],
});

/** The line on which both are the same, as far as both scales go. */
function drawSame(u: uPlot, colour: string): void {
  const { x, y } = u.scales;
  const low = Math.max(x?.min ?? 0, y?.min ?? 0);
  const high = Math.min(x?.max ?? 0, y?.max ?? 0);
  if (high <= low) return;
  u.ctx.save();
  u.ctx.strokeStyle = colour;
  u.ctx.lineWidth = 3;
  u.ctx.beginPath();
  u.ctx.moveTo(u.valToPos(low, "x", true), u.valToPos(low, "y", true));
  u.ctx.lineTo(u.valToPos(high, "x", true), u.valToPos(high, "y", true));
  u.ctx.stroke();
  u.ctx.restore();
}
