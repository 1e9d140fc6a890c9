/** Files for the user: through fetch, so that a refusal is told where the button is. */
import { ask } from "../api/client";
import type { Job, Round, Task } from "../api/types";

const KEEP_MS = 60_000;

/** The exported schedules, as the zip archive that stock TVM's `JSONDatabase` loads once unpacked. */
export async function saveSchedules(job: Job): Promise<void> {
  const answer = await ask(`jobs/${job.id}/schedules`);
  save(await answer.blob(), `mallorn-${job.id}.zip`);
}

/** The compiled model, a shared library that TVM's runtime loads. */
export async function saveLibrary(job: Job): Promise<void> {
  const answer = await ask(`jobs/${job.id}/library`);
  save(await answer.blob(), `mallorn-${job.id}.so`);
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
