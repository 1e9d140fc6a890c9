/** The same task in every job: the latency it came to and the trials it took; the fastest is marked. */
import { useMemo, type ReactNode } from "react";
import { latency, plural } from "../format";
import { formatRoute, useOrder } from "../route";
import { Empty } from "../ui/states";
import { Table, type Column } from "../ui/Table";
import { fastest, heaviest, labels, sideBySide, type Compared, type TaskRow } from "./overlay";

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
