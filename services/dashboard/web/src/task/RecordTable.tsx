/** The measurements behind the pictures, the fastest on top. */
import type { ReactNode } from "react";
import type { MeasuredRecord } from "../api/types";
import { clock, digits, latency } from "../format";
import { outcomeOf, outcomeWords } from "../job/words";
import { useOrder } from "../route";
import { Table, type Column } from "../ui/Table";

export function RecordTable({ records }: { records: readonly MeasuredRecord[] }): ReactNode {
  const order = useOrder("sort", "latency");
  return (
    <Table
      label="Measurements"
      columns={COLUMNS}
      rows={records}
      rowKey={(record) => String(record.id)}
      {...order}
    />
  );
}

const milliseconds = (ms: number | null): string => (ms === null ? "–" : latency(ms * 1000));

const COLUMNS: readonly Column<MeasuredRecord>[] = [
  { key: "latency", title: "Latency", width: 10, numeric: true, value: (record) => record.latency_us ?? record.bound_us, cell: latencyCell },
  { key: "spread", title: "Repeats", help: "Fastest and slowest run", width: 18, numeric: true, cell: spreadWords },
  {
    key: "outcome",
    title: "Outcome",
    width: 13,
    value: (record) => record.outcome,
    cell: (record) => (record.outcome === "ok" ? "ok" : <span className={outcomeOf(record) === "left_unbuilt" ? "" : "bad"} title={record.error ?? ""}>{outcomeWords(outcomeOf(record))}</span>),
  },
  { key: "origin", title: "Idea of", width: 12, value: (record) => record.origin, cell: (record) => <span title={record.origin}>{record.origin}</span> },
  { key: "kind", title: "Kind", width: 8, value: (record) => record.kind, cell: (record) => record.kind },
  { key: "predicted", title: "Predicted", width: 9, numeric: true, value: (record) => record.predicted, cell: (record) => (record.predicted === null ? "–" : digits(record.predicted)) },
  { key: "build", title: "Build", width: 9, numeric: true, value: (record) => record.build_ms, cell: (record) => milliseconds(record.build_ms) },
  { key: "run", title: "On device", width: 10, numeric: true, value: (record) => record.run_ms, cell: (record) => milliseconds(record.run_ms) },
  { key: "device", title: "Device", width: 12, value: (record) => record.device, cell: (record) => <span title={record.device ?? ""}>{record.device ?? "–"}</span> },
  { key: "when", title: "When", width: 16, numeric: true, value: (record) => record.created_at, cell: (record) => clock(record.created_at) },
];

function latencyCell(record: MeasuredRecord): ReactNode {
  if (record.bound_us === null) return latency(record.latency_us);
  const share = Math.round((record.disturbed ?? 0) * 100);
  return <span title={`Other programs had its processors for ${share} % of the time: an upper bound, which wins nothing.`}>≤ {latency(record.bound_us)}</span>;
}

function spreadWords(record: MeasuredRecord): string {
  if (record.run_us.length < 2) return record.run_us.length === 1 ? "1 run" : "–";
  return `${latency(Math.min(...record.run_us))} … ${latency(Math.max(...record.run_us))}`;
}
