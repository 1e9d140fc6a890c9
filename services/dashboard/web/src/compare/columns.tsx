/** What the jobs are and came to, a column each, and the same task in every job. */
import { type ReactNode, useMemo } from "react";
import { count, duration, latency, plural, target, times } from "../format";
import { formatRoute, useOrder } from "../route";
import { Empty } from "../ui/states";
import { type Column, Table } from "../ui/Table";
import { type Compared, differences, fastest, heaviest, labels, sideBySide, type TaskRow } from "./overlay";
import type { Job } from "../api/types";
import { failureCount, spentOf, versusOnnxruntime } from "../jobs/standing";
import { Best } from "../jobs/Rivalry";
import { formatValue, title } from "../jobs/options";
import { StateMark } from "../ui/parts";

type Line = { title: string; of: (job: Job) => ReactNode };

export function JobColumns({ jobs }: { jobs: readonly Compared[] }): ReactNode {
  const all = jobs.map(({ job }) => job);
  const names = labels(all);
  const lines: Line[] = [...LINES, ...differences(all).map((name) => ({ title: title(name), of: (job: Job) => formatValue(job.options[name]) || "–" }))];
  return (
    <div className="table-box" tabIndex={0} role="group" aria-label="Job beside job">
      <table className="beside">
        <thead>
          <tr>
            <td />
            {all.map((job, at) => (
              <th key={job.id} scope="col">
                <span className={`swatch series-${at + 1}`} aria-hidden="true" />
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
  { title: "Latency", of: (job) => <Best job={job} /> },
  { title: "vs onnxruntime", of: (job) => times(versusOnnxruntime(job)) },
  { title: "Trials", of: (job) => spentOf(job) },
  { title: "Failed", of: (job) => count(failureCount(job)) },
  { title: "Took", of: (job) => duration((job.finished_at ?? Date.now() / 1000) - job.created_at) },
  { title: "Target", of: (job) => <span title={job.target}>{target(job.target)}</span> },
  { title: "Seed", of: (job) => job.seed },
];

export function TaskColumns({ jobs }: { jobs: readonly Compared[] }): ReactNode {
  const order = useOrder("sort", "-share");
  const rows = useMemo(() => sideBySide(jobs), [jobs]);
  if (rows.length === 0) return <Empty title="No tasks yet">They are there once a model is imported.</Empty>;
  return (
    <Table
      label="Task beside task"
      columns={columns(jobs)}
      rows={rows}
      rowKey={(row) => row.workload}
      {...order}
    />
  );
}

function columns(jobs: readonly Compared[]): Column<TaskRow>[] {
  const names = labels(jobs.map(({ job }) => job));
  return [
    { key: "name", title: "Task", width: 24, value: (row) => row.name, cell: (row) => <span title={row.name}>{row.name}</span> },
    {
      key: "share",
      title: "Weighted",
      help: "The largest of the jobs' latencies times weight",
      width: 10,
      numeric: true,
      value: heaviest,
      cell: (row) => latency(heaviest(row) || null),
    },
    ...jobs.map(({ job }, column) => ({
      key: job.id,
      title: names[column] ?? "",
      help: "The best that this job came to or began with, and its trials",
      width: 18,
      numeric: true,
      value: (row: TaskRow) => row.cells[column]?.us,
      cell: (row: TaskRow) => <Cell row={row} column={column} jobId={job.id} />,
    })),
  ];
}

function Cell({ row, column, jobId }: { row: TaskRow; column: number; jobId: string }): ReactNode {
  const found = row.cells[column];
  if (found === undefined) return "–";
  const { task, us } = found;
  const best = fastest(row) === column;
  return (
    <a href={formatRoute(["jobs", jobId, "tasks", String(task.index)])} className={best ? "good" : "plain"}>
      {latency(us)}
      {best && " ✓"} <small>{plural(task.trials, "trial")}</small>
    </a>
  );
}
