/** The whole model at each size of a range that was tuned, beside onnxruntime; nothing for a job of one size. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { Section } from "../ui/parts";
import { type Column, Table } from "../ui/Table";
import { digits, latency, versus } from "../format";

const COLUMNS: readonly Column<Point>[] = [
  { key: "at", title: "At", width: 3, cell: (point) => point.at },
  { key: "tuned", title: "Tuned", width: 2, numeric: true, cell: (point) => point.tuned },
  { key: "aSecond", title: "A second", help: "Calls: of a decoder's step, tokens", width: 2, numeric: true, cell: (point) => point.aSecond },
  { key: "onnxruntime", title: "onnxruntime", width: 2, numeric: true, cell: (point) => point.onnxruntime },
  { key: "beside", title: "Beside it", width: 2, cell: (point) => point.beside },
];

export function Points({ job }: { job: Job }): ReactNode {
  const rows = points(job);
  if (rows.length === 0) return null;
  return (
    <Section id="points" title="Sizes">
      <Table label="Sizes that were tuned" columns={COLUMNS} rows={rows} rowKey={(point) => point.at} cards />
    </Section>
  );
}

export type Point = { at: string; tuned: string; aSecond: string; onnxruntime: string; beside: string };

export function points(job: Job): Point[] {
  return (job.report?.points ?? []).map(({ sizes, latency_us }) => {
    const tuned = latency_us["tuned"]?.median ?? null;
    const onnxruntime = latency_us["onnxruntime"]?.median ?? null;
    return {
      at: Object.entries(sizes)
        .map(([name, size]) => `${name}=${size}`)
        .join(" "),
      tuned: latency(tuned),
      aSecond: tuned === null ? "" : digits(1e6 / tuned),
      onnxruntime: latency(onnxruntime),
      beside: tuned === null || onnxruntime === null ? "" : versus(onnxruntime / tuned),
    };
  });
}
