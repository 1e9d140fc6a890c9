/** Whether a job's compiled model can be downloaded, and why not. */
import type { Job } from "../api/types";

/** A job that is not done may have a first version, of which only the server knows. */
export function hasLibrary(job: Job): boolean {
  return job.exported && (job.report == null || job.report.library != null);
}

/** Why there is no library to download; nothing where there is one. */
export function noLibrary(job: Job): string | undefined {
  if (hasLibrary(job)) return undefined;
  if (!job.exported) return job.export_deleted_at == null ? "There is a library once the job is done" : "The exported files were deleted";
  return job.report?.no_library_reason || "The job ended before libraries were stored";
}
