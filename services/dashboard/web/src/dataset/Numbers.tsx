/** The dataset in numbers: how much there is, of what, and how it grew. */
import { type ReactNode, useMemo } from "react";
import uPlot from "uplot";
import { get } from "../api/client";
import { useResource } from "../api/resource";
import type { Statistics } from "../api/types";
import { count, percent, plural, target } from "../format";
import { outcomeWords } from "../job/words";
import { dayAxis, lastOr, plainAxis, stepped } from "../ui/axes";
import { Chart, type Plan } from "../ui/Chart";
import { Fact, Facts, Meter, Section } from "../ui/parts";
import { Empty, Shown } from "../ui/states";
import { growth } from "./counts";

const REFRESH_SEC = 30;
const LONGEST = 12;

export function Numbers(): ReactNode {
  const statistics = useResource<Statistics>("dataset/stats", (signal) => get("dataset/stats", {}, signal), REFRESH_SEC);
  return (
    <Section id="numbers" title="Measurements">
      <Shown of={statistics} what="the numbers">
        {(known) =>
          known.measurements === 0 ? <Empty title="Nothing measured yet">Every candidate of every job is kept here, failures too.</Empty> : <Known numbers={known} />
        }
      </Shown>
    </Section>
  );
}

type Count = Statistics["targets"][number];

function Known({ numbers }: { numbers: Statistics }): ReactNode {
  const failed = numbers.outcomes.filter(({ name }) => name !== "ok").reduce((sum, outcome) => sum + outcome.count, 0);
  return (
    <>
      <Facts>
        <Fact name="Measurements" note={numbers.imported_measurements > 0 ? `${count(numbers.imported_measurements)} from other datasets` : "all taken here"}>
          {count(numbers.measurements)}
        </Fact>
        <Fact name="Workloads" note={plural(numbers.operators.length, "operator")}>
          {count(numbers.workloads)}
        </Fact>
        <Fact name="Failed">{percent(failed / numbers.measurements)}</Fact>
      </Facts>
      {numbers.days.length > 1 && <Growth days={numbers.days} />}
      <div className="columns counts">
        <Counts title="By operator" counts={numbers.operators} words={(name) => name} />
        <Counts title="By target" counts={numbers.targets} words={target} />
        <Counts title="By model" counts={numbers.models} words={(name) => name} />
        <Counts title="By outcome" counts={numbers.outcomes} words={(name) => (name === "ok" ? "timed" : outcomeWords(name))} />
      </div>
    </>
  );
}

function Counts({ title, counts, words }: { title: string; counts: readonly Count[]; words: (name: string) => string }): ReactNode {
  const most = counts[0]?.count ?? 0;
  if (counts.length === 0) return null;
  return (
    <div>
      <h3>{title}</h3>
      <ul className="names" tabIndex={0} aria-label={title}>
        {counts.slice(0, LONGEST).map((entry) => (
          <li key={entry.name}>
            <span className="count-row" title={entry.name}>
              <span>{words(entry.name)}</span> <span>{count(entry.count)}</span>
            </span>
            <Meter value={entry.count} of={most} label={`${entry.count} of ${most}`} />
          </li>
        ))}
      </ul>
      {counts.length > LONGEST && <p className="note">and {counts.length - LONGEST} more</p>}
    </div>
  );
}

function Growth({ days }: { days: Statistics["days"] }): ReactNode {
  const data = useMemo<uPlot.AlignedData>(() => growth(days), [days]);
  const [first, last] = [days[0], days.at(-1)];
  const label = `From ${first?.day} to ${last?.day} it grew to ${count(last?.total ?? 0)} measurements.`;
  return (
    <figure className="more">
      <Chart label={label} planKey="growth" plan={growthPlan} data={data} height={200} />
      <figcaption>{label} Days are UTC.</figcaption>
    </figure>
  );
}

const growthPlan: Plan = (colours) => ({
  tzDate: (sec) => uPlot.tzDate(new Date(sec * 1000), "Etc/UTC"),
  scales: { x: { time: true }, y: { range: (_u, _low, high) => [0, high * 1.05] } },
  axes: [dayAxis(colours, "day"), { ...plainAxis(colours, "measurements"), size: 74, values: (_u, ticks) => ticks.map((tick) => count(tick)) }],
  series: [
    { label: "day", value: lastOr((sec) => (sec === null ? "–" : new Date(sec * 1000).toISOString().slice(0, 10))) },
    { label: "measurements", ...stepped, stroke: colours.line, width: 2, points: { show: false }, value: lastOr((total) => (total === null ? "–" : count(total))) },
  ],
});
