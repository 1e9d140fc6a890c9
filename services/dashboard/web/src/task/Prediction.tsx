/** What the cost model thought of candidates, and what became of them. */
import { type ReactNode, useMemo } from "react";
import type uPlot from "uplot";
import type { MeasuredRecord, Round } from "../api/types";
import { latency, percent, plural } from "../format";
import { latencyAxis, latencyAxisBelow, LOGARITHMIC, pointed } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { Empty } from "../ui/states";
import { pairs, pairsInOrder } from "./measurements";

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

const plan: Plan = (colours) => {
  const colour = colours.series[0] ?? colours.line;
  return {
    scales: { x: { ...LOGARITHMIC, time: false }, y: LOGARITHMIC },
    hooks: { drawClear: [(u) => drawSame(u, colours.grid)] },
    axes: [latencyAxisBelow(colours, "predicted"), latencyAxis(colours, "measured")],
    series: [
      { label: "predicted", value: pointed(latency) },
      {
        label: "measured",
        stroke: colour,
        paths: () => null,
        points: { show: true, size: 5, fill: colour, stroke: colour },
        value: pointed(latency),
      },
    ],
  };
};

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
