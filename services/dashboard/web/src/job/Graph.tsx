/** The model's graph before and after the passes. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { plural } from "../format";
import { Section } from "../ui/parts";

type Counts = { [operator: string]: number };
type Step = NonNullable<Job["graph"]>["steps"][number];

export function Graph({ graph }: { graph: Job["graph"] }): ReactNode {
  if (graph === null) return null;
  const steps = graph.steps.filter(
    (step) => step.ops_before !== step.ops_after || step.functions_before !== step.functions_after,
  );
  return (
    <Section id="graph" title="Graph">
      <div className="columns">
        <Operators title="Before the passes" counts={graph.operators_before} />
        <div>
          <h3>Passes that changed it</h3>
          <ol>
            {steps.map((step, at) => (
              <li key={at}>
                <code>{step.pass.split(".").at(-1)}</code>: {change(step)}
              </li>
            ))}
          </ol>
        </div>
        <Operators title="After the passes" counts={graph.operators_after} />
      </div>
    </Section>
  );
}

function change(step: Step): string {
  const calls = step.ops_before === step.ops_after ? "" : `${step.ops_before} → ${plural(step.ops_after, "call")}`;
  const functions = step.functions_before === step.functions_after ? "" : `${step.functions_before} → ${plural(step.functions_after, "function")}`;
  return [calls, functions].filter(Boolean).join(", ");
}

function Operators({ title, counts }: { title: string; counts: Counts }): ReactNode {
  const sorted = Object.entries(counts).sort(([, one], [, other]) => other - one);
  return (
    <div>
      <h3>{title}</h3>
      <ul className="operators" tabIndex={0} aria-label={title}>
        {sorted.map(([name, times]) => (
          <li key={name}>
            <span>{name}</span> <span>×{times}</span>
          </li>
        ))}
      </ul>
    </div>
  );
}
