/** Which job this is, what it was asked for, and what can be typed about it. */
import type { ReactNode } from "react";
import { useAct } from "../api/resource";
import type { Job, JobOption } from "../api/types";
import { date } from "../format";
import { formatLabels } from "../jobs/choose";
import { useOptions } from "../jobs/OptionFields";
import { formatValue } from "../jobs/options";
import { Copy, Entry, Press, Section } from "../ui/parts";
import { Failed } from "../ui/states";
import { commandsFor } from "./commands";
import { openReport } from "./download";

export function About({ job }: { job: Job }): ReactNode {
  const known = useOptions();
  const { error, act } = useAct();
  return (
    <Section id="about" title="About this job">
      <div className="columns">
        <dl className="about">
          <Entry name="Job">
            <Copy text={job.id} label="the job's id" />
          </Entry>
          <Entry name="Owner">{job.owner}</Entry>
          <Entry name="Submitted">{date(job.created_at)}</Entry>
          <Entry name="Ended">{job.finished_at === null ? "not yet" : date(job.finished_at)}</Entry>
          <Entry name="Labels">{formatLabels(job) || "none"}</Entry>
          <Entry name="Seed">{job.seed}</Entry>
          <Entry name="Priority">{job.priority}</Entry>
          <Entry name="Target" isId>{job.target}</Entry>
          <Entry name="Model" isId>{job.model_id}</Entry>
          <Entry name="Options">{known.data ? changed(job, known.data.items) || "all as they are by default" : "…"}</Entry>
        </dl>
        <dl className="about commands">
          <div>
            <Entry name="All there is to know of it on one page">
              <Press words="Report (HTML)" kind="small" onPress={() => void act(() => openReport(job))} />
              {error && <Failed error={error} />}
            </Entry>
          </div>
          {commandsFor(job).map(([why, command]) => (
            <div key={why}>
              <Entry name={why}>
                <Copy text={command} />
              </Entry>
            </div>
          ))}
        </dl>
      </div>
    </Section>
  );
}

/** What is not as it would be by itself. */
function changed(job: Job, options: readonly JobOption[]): string {
  const given: { readonly [name: string]: unknown } = job.options;
  return options
    .filter(({ name, default: usual }) => name in given && formatValue(given[name]) !== formatValue(usual))
    .map(({ name }) => `${name} ${formatValue(given[name])}`)
    .join(" · ");
}
