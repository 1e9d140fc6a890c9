/** What the cost model thought of candidates, and what became of them. */
import { useMemo, type ReactNode } from "react";
import type uPlot from "uplot";
import type { MeasuredRecord } from "../api/types";
import { digits, latency, plural } from "../format";
import { latencyAxis, LOGARITHMIC, plainAxis } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { Empty } from "../ui/states";
import { pairs, rankAgreement } from "./measurements";

export function Prediction({ records }: { records: readonly MeasuredRecord[] }): ReactNode {
  const found = useMemo(() => pairs(records), [records]);
  const data = useMemo<uPlot.AlignedData>(() => [found.map((pair) => pair.predicted), found.map((pair) => pair.us)], [found]);
  const agreement = rankAgreement(found);
  if (found.length === 0) return <Empty title="No predictions yet">The first rounds are searched without a trained cost model.</Empty>;
  const label = `${plural(found.length, "candidate")} with a prediction${agreement === null ? "" : `, rank correlation ${agreement.toFixed(2)}`}.`;
  return (
    <figure>
      <Chart label={label} planKey="prediction" plan={plan} data={data} />
      <figcaption>{label} A good model puts the fast ones to the right and below.</figcaption>
    </figure>
  );
}

const plan: Plan = (colours) => {
  const colour = colours.series[0] ?? colours.line;
  return {
    scales: { x: { time: false }, y: LOGARITHMIC },
    axes: [plainAxis(colours, "predicted score (higher is better)"), latencyAxis(colours)],
    series: [
      { label: "predicted", value: (_u, score) => (score === null ? "–" : digits(score)) },
      {
        label: "measured",
        stroke: colour,
        paths: () => null,
        points: { show: true, size: 5, fill: colour, stroke: colour },
        value: (_u, us) => latency(us),
      },
    ],
  };
};
