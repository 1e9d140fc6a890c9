/** What the jobs are and what they came to, a column each. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { count, duration, latency, target, times } from "../format";
import { bestUs, engines, failureCount, speedUp, spentOf } from "../jobs/standing";
import { title } from "../jobs/options";
import { formatRoute } from "../route";
import { StateMark } from "../ui/parts";
import { differences, labels, type Compared } from "./overlay";

type Line = { title: string; of: (job: Job) => ReactNode };

export function JobColumns({ jobs }: { jobs: readonly Compared[] }): ReactNode {
  const all = jobs.map(({ job }) => job);
  const names = labels(all);
  const lines: Line[] = [...LINES, ...differences(all).map((name) => ({ title: title(name), of: (job: Job) => words(job.options[name]) }))];
  return (
    <div className="table-box" tabIndex={0} role="group" aria-label="Job beside job">
      <table className="beside">
        <thead>
          <tr>
            <td />
            {all.map((job, at) => (
              <th key={job.id} scope="col">
                <span className={`swatch swatch-${at + 1}`} aria-hidden="true" />
                <a href={formatRoute(["jobs", job.id])}>{names[at]}</a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {lines.map(({ title: words, of }) => (
            <tr key={words}>
              <th scope="row">{words}</th>
              {all.map((job) => (
                <td key={job.id}>{of(job)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

const LINES: readonly Line[] = [
  { title: "State", of: (job) => <StateMark state={job.state} /> },
  {
    title: "Latency",
    of: (job) => (
      <>
        {latency(bestUs(job))} {bestUs(job) !== null && engines(job).tuned === undefined && <small>estimated</small>}
      </>
    ),
  },
  { title: "Speed-up", of: (job) => times(speedUp(job)) },
  { title: "Trials", of: (job) => spentOf(job) },
  { title: "Failed", of: (job) => count(failureCount(job)) },
  { title: "Took", of: (job) => duration((job.finished_at ?? Date.now() / 1000) - job.created_at) },
  { title: "Target", of: (job) => <span title={job.target}>{target(job.target)}</span> },
  { title: "Seed", of: (job) => job.seed },
];

function words(value: unknown): string {
  if (value === null || value === undefined) return "–";
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}
