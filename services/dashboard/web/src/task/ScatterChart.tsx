/** Every trial as a point: when, how fast, whose idea, how far its repeats lay apart. */
import { type ReactNode, useMemo, useRef } from "react";
import type uPlot from "uplot";
import type { MeasuredRecord } from "../api/types";
import { duration, latency, plural } from "../format";
import { lastOr, latencyAxis, LOGARITHMIC, pointed, timeAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { scatter, type Scatter } from "./measurements";

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
  return (colours) => {
    const dots = (name: string, colour: string): uPlot.Series => ({
      label: name,
      stroke: colour,
      fill: colour,
      paths: () => null,
      points: { show: true, size: 5, fill: colour, stroke: colour },
      value: pointed(latency),
    });
    return {
      scales: { x: { time: false }, y: LOGARITHMIC },
      axes: [timeAxis(colours, "time since submit"), latencyAxis(colours)],
      hooks: { drawClear: [(u) => drawSpread(u, points(), colours.grid)] },
      series: [
        { label: "time", value: pointed(duration) },
        { label: "best", stroke: colours.muted, width: 1.5, points: { show: false }, value: lastOr(latency) },
        { ...dots("failed", colours.bad), value: pointed(() => "yes") },
        ...names.map((name, at) => dots(name, colours.series[at % colours.series.length] ?? colours.line)),
      ],
    };
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
