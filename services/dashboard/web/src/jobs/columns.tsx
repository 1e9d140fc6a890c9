/** The columns of the list of jobs. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { clock, count, duration, latency, target, times } from "../format";
import { formatRoute } from "../route";
import { Meter, StateMark } from "../ui/parts";
import type { Column } from "../ui/Table";
import { bestUs, engines, failureCount, isFinal, secondsLeft, speedUp, spentOf } from "./standing";

type Toggle = (ids: readonly string[], on: boolean) => void;

export function jobColumns(shown: readonly Job[], picked: ReadonlySet<string>, toggle: Toggle): Column<Job>[] {
  const nowSec = Date.now() / 1000;
  const ids = shown.map((job) => job.id);
  return [
    {
      key: "pick",
      title: <Box label="Select all shown" on={ids.every((id) => picked.has(id))} set={(on) => toggle(ids, on)} />,
      width: 4,
      cell: (job) => <Box label={`Select ${job.name}`} on={picked.has(job.id)} set={(on) => toggle([job.id], on)} />,
    },
    {
      key: "name",
      title: "Model",
      width: 20,
      value: (job) => job.name,
      cell: (job) => (
        <>
          <a href={formatRoute(["jobs", job.id])} title={job.name}>
            {job.name}
          </a>
          <small className="id">{job.id}</small>
        </>
      ),
    },
    {
      key: "state",
      title: "State",
      width: 16,
      value: (job) => job.state,
      cell: (job) => (
        <>
          <StateMark state={job.state} />
          <small title={job.reason}>{job.reason.split("\n")[0]}</small>
        </>
      ),
    },
    { key: "target", title: "Target", width: 19, value: (job) => target(job.target), cell: (job) => <span title={job.target}>{target(job.target)}</span> },
    {
      key: "best",
      title: "Latency",
      help: "Of the whole tuned model; before it is finished the sum over its tasks",
      width: 11,
      numeric: true,
      value: bestUs,
      cell: (job) => (
        <>
          {latency(bestUs(job))}
          {bestUs(job) !== null && engines(job).tuned === undefined && <small>estimated</small>}
        </>
      ),
    },
    {
      key: "gain",
      title: "Speed-up",
      help: "Against the untuned model, both measured whole",
      width: 9,
      numeric: true,
      value: speedUp,
      cell: (job) => times(speedUp(job)),
    },
    {
      key: "trials",
      title: "Trials",
      width: 14,
      numeric: true,
      value: (job) => job.progress.trials,
      cell: (job) => <Trials job={job} />,
    },
    {
      key: "left",
      title: "Time left",
      width: 13,
      numeric: true,
      value: (job) => secondsLeft(job, nowSec),
      cell: (job) => (isFinal(job) ? "" : duration(secondsLeft(job, nowSec))),
    },
    { key: "owner", title: "Owner", help: "The name of the key that submitted it", width: 9, value: (job) => job.owner, cell: (job) => <span title={job.owner}>{job.owner}</span> },
    { key: "created", title: "Submitted", width: 18, numeric: true, value: (job) => job.created_at, cell: (job) => clock(job.created_at) },
  ];
}

function Trials({ job }: { job: Job }): ReactNode {
  const { trials } = job.progress;
  const failed = failureCount(job);
  return (
    <>
      {spentOf(job)}
      {failed > 0 && <small className="bad">{count(failed)} failed</small>}
      {job.trials !== null && <Meter value={trials} of={job.trials} label={`${spentOf(job)} trials`} />}
    </>
  );
}

function Box({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }): ReactNode {
  return <input type="checkbox" aria-label={label} checked={on} onChange={(event) => set(event.target.checked)} />;
}
