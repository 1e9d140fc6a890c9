/** The columns of the list of jobs. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { count, duration, target } from "../format";
import { Goto, Meter, StateMark, When } from "../ui/parts";
import type { Column } from "../ui/Table";
import { apart, formatLabels } from "./choose";
import { Best, Rivalry } from "./Rivalry";
import { bestUs, explanation, failureCount, isFinal, mark, secondsLeft, spentOf, versusOnnxruntime } from "./standing";

type Toggle = (ids: readonly string[], on: boolean) => void;

export function jobColumns(shown: readonly Job[], picked: ReadonlySet<string>, toggle: Toggle): Column<Job>[] {
  const nowSec = Date.now() / 1000;
  const ids = shown.map((job) => job.id);
  const differences = apart(shown);
  return [
    {
      key: "pick",
      title: <Box label="Select all shown" on={ids.every((id) => picked.has(id))} set={(on) => toggle(ids, on)} />,
      width: 4,
      cell: (job) => <Box label={`Select ${job.name}`} on={picked.has(job.id)} set={(on) => toggle([job.id], on)} />,
    },
    {
      key: "name",
      title: "Name",
      width: 22,
      value: (job) => job.name,
      cell: (job) => (
        <>
          <Goto to={["jobs", job.id]} name={job.name} />
          <small title={`${job.id} ${formatLabels(job)} ${differences.get(job.id) ?? ""}`}>
            {formatLabels(job) && <b>{formatLabels(job)} · </b>}
            {differences.get(job.id) && <>{differences.get(job.id)} · </>}
            <span className="id">{job.id}</span>
          </small>
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
          <StateMark state={job.state} mark={mark(job)} />
          <small title={standsAs(job)}>{standsAs(job).split("\n")[0]}</small>
        </>
      ),
    },
    { key: "target", title: "Target", width: 14, value: (job) => target(job.target), cell: (job) => <span title={job.target}>{target(job.target)}</span> },
    {
      key: "best",
      title: "Latency",
      help: "Of the whole tuned model; before it is finished the sum over its tasks",
      width: 11,
      numeric: true,
      value: bestUs,
      cell: (job) => <Best job={job} />,
    },
    {
      key: "rival",
      title: "vs onnxruntime",
      help: "How many times as fast as onnxruntime, both measured whole",
      width: 15,
      numeric: true,
      value: versusOnnxruntime,
      cell: (job) => <Rivalry job={job} />,
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
    { key: "owner", title: "Owner", help: "The name of the key that submitted it", width: 8, value: (job) => job.owner, cell: (job) => <span title={job.owner}>{job.owner}</span> },
    { key: "created", title: "Age", help: "Since it was submitted", width: 15, numeric: true, value: (job) => job.created_at, cell: (job) => <When sec={job.created_at} /> },
  ];
}

/** The verdict on what is done, else why it waits or ended, or its step. */
function standsAs(job: Job): string {
  return (job.state === "done" && job.verdict?.summary) || explanation(job);
}

function Trials({ job }: { job: Job }): ReactNode {
  const { trials } = job.progress;
  const failed = failureCount(job);
  return (
    <>
      {spentOf(job)}
      {failed > 0 && <small className="bad">{count(failed)} failed</small>}
      {!!job.trials && <Meter value={trials} of={job.trials} label={`${spentOf(job)} trials`} />}
    </>
  );
}

function Box({ label, on, set }: { label: string; on: boolean; set: (on: boolean) => void }): ReactNode {
  return <input type="checkbox" aria-label={label} checked={on} onChange={(event) => set(event.target.checked)} />;
}
