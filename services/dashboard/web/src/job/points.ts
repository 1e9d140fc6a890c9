/** A job for a range of shapes, at each size that was tuned. */
import type { Job } from "../api/types";
import { digits, latency, versus } from "../format";

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
