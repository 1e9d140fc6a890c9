/** Which job this is, what it was asked for, and what can be typed about it. */
import type { ReactNode } from "react";
import type { Job, JobOption } from "../api/types";
import { date } from "../format";
import { formatLabels } from "../jobs/choose";
import { useOptions } from "../jobs/OptionFields";
import { formatValue } from "../jobs/options";
import { Copy } from "../ui/parts";
import { commandsFor } from "./commands";
import { address } from "../api/client";

export function About({ job }: { job: Job }): ReactNode {
  const known = useOptions();
  return (
    <section aria-labelledby="about">
      <h2 id="about">About this job</h2>
      <div className="columns">
        <dl className="about">
          <dt>Job</dt>
          <dd>
            <Copy text={job.id} label="the job's id" />
          </dd>
          <dt>Owner</dt>
          <dd>{job.owner}</dd>
          <dt>Submitted</dt>
          <dd>{date(job.created_at)}</dd>
          <dt>Ended</dt>
          <dd>{job.finished_at === null ? "not yet" : date(job.finished_at)}</dd>
          <dt>Labels</dt>
          <dd>{formatLabels(job) || "none"}</dd>
          <dt>Seed</dt>
          <dd>{job.seed}</dd>
          <dt>Priority</dt>
          <dd>{job.priority}</dd>
          <dt>Target</dt>
          <dd className="id">{job.target}</dd>
          <dt>Model</dt>
          <dd className="id">{job.model_id}</dd>
          <dt>Options</dt>
          <dd>{known.data ? changed(job, known.data.items) || "all as they are by default" : "…"}</dd>
        </dl>
        <dl className="about commands">
          <div>
            <dt>All there is to know of it on one page</dt>
            <dd>
              <ReportLink job={job} />
            </dd>
          </div>
          {commandsFor(job).map(([why, command]) => (
            <div key={why}>
              <dt>{why}</dt>
              <dd>
                <Copy text={command} />
              </dd>
            </div>
          ))}
        </dl>
      </div>
    </section>
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

export function ReportLink({ job }: { job: Job }): ReactNode {
  return (
    <a href={address(`jobs/${job.id}/report`)} target="_blank" rel="noreferrer">
      Report (HTML)
    </a>
  );
}
