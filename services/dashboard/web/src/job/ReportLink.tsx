/** The way to a job's report, the one HTML page that `mallorn report` writes. */
import type { ReactNode } from "react";
import { address } from "../api/client";
import type { Job } from "../api/types";

export function ReportLink({ job }: { job: Job }): ReactNode {
  return (
    <a href={address(`jobs/${job.id}/report`)} target="_blank" rel="noreferrer">
      Report (HTML)
    </a>
  );
}
