/** Files for the user: through fetch, so that a refusal is told where the button is. */
import { ask } from "../api/client";
import type { Job, Round, Task } from "../api/types";

const KEEP_MS = 60_000;

/** Schedules, as the zip archive that stock TVM's `JSONDatabase` loads once unpacked, or the compiled model. */
export async function saveExported(job: Job, what: "schedules" | "library"): Promise<void> {
  const answer = await ask(`jobs/${job.id}/${what}`);
  save(await answer.blob(), `mallorn-${job.id}.${what === "library" ? "so" : "zip"}`);
}

/** Opens the report in its own tab from memory: a link would not send the page's secret. */
export async function openReport(job: Job): Promise<void> {
  const answer = await ask(`jobs/${job.id}/report`);
  window.open(URL.createObjectURL(await answer.blob()), "_blank", "noopener");
}

/** Why there is nothing to download; nothing where there is. A job that is not done may have a library. */
export function noDownload(job: Job, what: "schedules" | "library"): string | undefined {
  if (!job.exported) return job.export_deleted_at == null ? `There ${what === "library" ? "is a library" : "are schedules"} once the job is done` : "The exported files were deleted; measurements and schedules are still there";
  return what === "library" && job.report != null && job.report.library == null ? job.report.no_library_reason || "The job ended before libraries were stored" : undefined;
}

/** All that the page shows of a job, as JSON. */
export function saveReport(job: Job, tasks: readonly Task[], rounds: readonly Round[]): void {
  const text = JSON.stringify({ job, tasks, rounds }, null, 1);
  save(new Blob([text], { type: "application/json" }), `mallorn-${job.id}-report.json`);
}

function save(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), KEEP_MS);
}
