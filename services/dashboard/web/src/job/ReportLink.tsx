/** The way to a job's report, the one HTML page that `mallorn report` writes. */
import { useState, type MouseEvent, type ReactNode } from "react";
import { ApiError, address, hasKey } from "../api/client";
import type { Job } from "../api/types";
import { Failed } from "../ui/states";
import { openReport } from "./download";

export function ReportLink({ job }: { job: Job }): ReactNode {
  const [error, setError] = useState<ApiError | null>(null);
  const open = (event: MouseEvent): void => {
    if (!hasKey()) return;
    event.preventDefault();
    setError(null);
    openReport(job).catch((reason: unknown) => setError(reason instanceof ApiError ? reason : new ApiError(0, String(reason), "")));
  };
  return (
    <>
      <a href={address(`jobs/${job.id}/report`)} target="_blank" rel="noreferrer" onClick={open}>
        Report (HTML)
      </a>
      {error && <Failed error={error} />}
    </>
  );
}
