/** The bars of the timeline in words. */
import { useMemo, useState, type ReactNode } from "react";
import { count, duration } from "../format";
import { Goto } from "../ui/parts";
import type { Order } from "../ui/sort";
import { Table, type Column } from "../ui/Table";
import type { Stretch } from "./lanes";

export function StintTable({ stints }: { stints: readonly Stretch[] }): ReactNode {
  const [order, setOrder] = useState<Order>({ key: "began", down: true });
  const rows = useMemo(() => [...stints], [stints]);
  return <Table label="Rounds" columns={COLUMNS} rows={rows} rowKey={(stint) => `${stint.round_id}/${stint.device}`} order={order} onOrder={setOrder} />;
}

function What({ stint: { stage, job_name, task_name, task_index }, jobId }: { stint: Stretch; jobId: string }): ReactNode {
  const place = stage === undefined ? ["jobs", jobId, "tasks", String(task_index)] : ["jobs", jobId];
  return <Goto to={place} name={stage ?? task_name ?? ""} title={`${job_name}: ${stage ?? task_name}`} />;
}

const took = (stint: Stretch): number | null => (stint.finished_at === null ? null : stint.finished_at - stint.started_at);

const COLUMNS: readonly Column<Stretch>[] = [
  { key: "began", title: "Began", width: 12, value: (stint) => stint.started_at, cell: (stint) => new Date(stint.started_at * 1000).toLocaleTimeString(undefined, { timeStyle: "medium" }) },
  { key: "took", title: "Took", width: 9, numeric: true, value: took, cell: (stint) => (took(stint) === null ? "running" : duration(took(stint))) },
  { key: "worker", title: "Worker", width: 18, value: (stint) => stint.worker, cell: (stint) => <span title={stint.worker}>{stint.worker}</span> },
  { key: "device", title: "Device", width: 16, value: (stint) => stint.device, cell: (stint) => stint.device ?? "–" },
  { key: "measuring", title: "Measuring", width: 10, numeric: true, value: (stint) => stint.measuring_sec, cell: (stint) => (stint.stage === undefined ? duration(stint.measuring_sec) : "") },
  {
    key: "task",
    title: "Task or stage",
    width: 26,
    value: (stint) => stint.stage ?? stint.task_name,
    cell: (stint) => (stint.job_id === null ? `another owner's ${stint.stage ?? "round"}` : <What stint={stint} jobId={stint.job_id} />),
  },
  { key: "trials", title: "Trials", width: 8, numeric: true, value: (stint) => stint.trials, cell: (stint) => (stint.stage === undefined ? count(stint.trials) : "") },
  { key: "failed", title: "Failed", width: 8, numeric: true, value: (stint) => stint.failures, cell: (stint) => (stint.failures > 0 ? <span className="bad">{stint.failures}</span> : "") },
  { key: "state", title: "State", width: 10, value: (stint) => stint.state, cell: (stint) => stint.state },
];
