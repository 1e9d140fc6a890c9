/** A job's latency, and how it stands beside onnxruntime, in the verdict's words and colour. */
import type { ReactNode } from "react";
import type { Job } from "../api/types";
import { latency } from "../format";
import { bestUs, engines, type Level } from "./standing";

const TONES: { readonly [level in Level]: string } = { good: "good", fair: "", poor: "bad", none: "" };

export function Rivalry({ job }: { job: Job }): ReactNode {
  const beside = job.verdict?.comparison;
  const words = beside ? beside.text.replace(" times", "×") : "–";
  return (
    <span className={TONES[beside?.level ?? "none"]} title={words}>
      {words}
    </span>
  );
}

export function Best({ job }: { job: Job }): ReactNode {
  return (
    <>
      {latency(bestUs(job))} {bestUs(job) !== null && engines(job).tuned === undefined && <small>estimated</small>}
    </>
  );
}
