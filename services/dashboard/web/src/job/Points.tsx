/** The whole model at each size of a range that was tuned, beside onnxruntime; nothing for a job of one size. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { Table, type Column } from "../ui/Table";
import { points, type Point } from "./points";

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
    <section aria-labelledby="points">
      <h2 id="points">Sizes</h2>
      <Table label="Sizes that were tuned" columns={COLUMNS} rows={rows} rowKey={(point) => point.at} cards />
    </section>
  );
}
