/** Where a job's seconds went besides its trials, as one bar in the order of time; nothing for a report that does not tell. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { duration, percent, shortLatency } from "../format";
import { Section } from "../ui/parts";

/** In the order in which they begin, each with what is done in it. */
const DONE_IN: { readonly [step: string]: string } = {
  import: "reads the model and splits it into tasks",
  probe: "measures the machine, where nobody has",
  propose: "makes first guesses for every task",
  build: "compiles the whole model",
  check: "compares what it computes with onnxruntime",
  decide: "times the best candidates again and checks them",
  export: "writes what is downloaded",
  time: "times the guesses inside the model",
  compare: "times the whole model beside other engines",
  rest: "waits for a worker, and what no step counts",
};
const ORDER = Object.keys(DONE_IN);
const COLOURS = 6;
/** A smaller part is too thin to be told by its colour. */
const LEAST_SHARE = 0.01;

export function StepSeconds({ job }: { job: Job }): ReactNode {
  const steps = stepsOf(job);
  if (steps.length === 0) return null;
  const total = duration(steps.reduce((sum, { sec }) => sum + sec, 0));
  return (
    <Section id="seconds" title="Where the time went">
      <figure>
        <ol className="steps" aria-label="Seconds of each step">
          {steps.map(({ name, share, words, colour, middle }) => (
            <li key={name} tabIndex={0} className={`series-${colour}`} style={{ flexGrow: share * 100 }}>
              <span style={{ left: `${middle * 100}%`, translate: `${-middle * 100}%` }}>{words}</span>
            </li>
          ))}
        </ol>
        <ul className="legend" aria-hidden="true">
          {steps.filter(isNamed).map(({ name, sec, colour }) => (
            <li key={name}>
              <span className={`swatch series-${colour}`} />
              {name} {seconds(sec, 3)}
            </li>
          ))}
        </ul>
        <figcaption>{`${total} ${job.trials === 0 ? "from submit to the end of the finish" : "besides the trials"}. Point at a part for its exact figures.`}</figcaption>
      </figure>
    </Section>
  );
}

/** `share` and `middle` are of the bar; the colour 0 is that of the rest, and of what is too thin for one. */
export type Step = { name: string; sec: number; share: number; middle: number; words: string; colour: number };

const isNamed = ({ name, colour }: Step): boolean => colour > 0 || name === "rest";

type Spent = NonNullable<NonNullable<Job["report"]>["seconds"]>[string];

export function stepsOf(job: Job): Step[] {
  const told = Object.entries(job.report?.seconds ?? {}).filter(([, { wall }]) => wall > 0);
  const inOrder = told.sort(([one], [other]) => ORDER.indexOf(one) - ORDER.indexOf(other));
  const total = told.reduce((sum, [, { wall }]) => sum + wall, 0);
  const coloured = largest(inOrder, total);
  let before = 0;
  return inOrder.map(([name, spent]) => {
    const share = spent.wall / total;
    const middle = before + share / 2;
    before += share;
    return { name, sec: spent.wall, share, middle, words: inWords(name, spent, share), colour: coloured.indexOf(name) + 1 };
  });
}

/** As many as there are colours, in the order that they have. */
function largest(steps: readonly [string, Spent][], total: number): string[] {
  const wide = steps.filter(([name, { wall }]) => name !== "rest" && wall >= LEAST_SHARE * total);
  const widest = [...wide].sort(([, one], [, other]) => other.wall - one.wall).slice(0, COLOURS);
  return wide.filter((step) => widest.includes(step)).map(([name]) => name);
}

function inWords(name: string, { wall, processor }: Spent, share: number): string {
  const busy = processor === null ? "" : `, ${seconds(processor, 6)} of processor time`;
  return `${name}: ${seconds(wall, 6)} (${percent(share)})${busy}; ${DONE_IN[name] ?? ""}`;
}

const seconds = (sec: number, places: number): string => shortLatency(sec * 1e6, places);
