/** The rounds of the timeline in words. */
import { useMemo, useState, type ReactNode } from "react";
import type { Stint } from "../api/types";
import { count, duration } from "../format";
import { formatRoute } from "../route";
import type { Order } from "../ui/sort";
import { Table, type Column } from "../ui/Table";

export function StintTable({ stints }: { stints: readonly Stint[] }): ReactNode {
  const [order, setOrder] = useState<Order>({ key: "began", down: true });
  const rows = useMemo(() => [...stints], [stints]);
  return <Table label="Rounds" columns={COLUMNS} rows={rows} rowKey={(stint) => `${stint.round_id}/${stint.device}`} order={order} onOrder={setOrder} />;
}

const took = (stint: Stint): number | null => (stint.finished_at === null ? null : stint.finished_at - stint.started_at);

const COLUMNS: readonly Column<Stint>[] = [
  { key: "began", title: "Began", width: 12, value: (stint) => stint.started_at, cell: (stint) => new Date(stint.started_at * 1000).toLocaleTimeString(undefined, { timeStyle: "medium" }) },
  { key: "took", title: "Took", width: 9, numeric: true, value: took, cell: (stint) => (took(stint) === null ? "running" : duration(took(stint))) },
  { key: "worker", title: "Slot", width: 18, value: (stint) => stint.worker, cell: (stint) => <span title={stint.worker}>{stint.worker}</span> },
  { key: "device", title: "Device", width: 16, value: (stint) => stint.device, cell: (stint) => stint.device ?? "–" },
  { key: "measuring", title: "Measuring", width: 10, numeric: true, value: (stint) => stint.measuring_sec, cell: (stint) => duration(stint.measuring_sec) },
  {
    key: "task",
    title: "Task",
    width: 26,
    value: (stint) => stint.task_name,
    cell: (stint) =>
      stint.job_id === null ? "another owner's" : <a href={formatRoute(["jobs", stint.job_id, "tasks", String(stint.task_index)])} title={`${stint.job_name}: ${stint.task_name}`}>{stint.task_name}</a>,
  },
  { key: "trials", title: "Trials", width: 8, numeric: true, value: (stint) => stint.trials, cell: (stint) => count(stint.trials) },
  { key: "failed", title: "Failed", width: 8, numeric: true, value: (stint) => stint.failures, cell: (stint) => (stint.failures > 0 ? <span className="bad">{stint.failures}</span> : "") },
  { key: "state", title: "State", width: 10, value: (stint) => stint.state, cell: (stint) => stint.state },
];
