/** Files for the user: through fetch, because a plain link cannot present a key. */
import { ask } from "../api/client";
import type { Job, Round, Task } from "../api/types";

const KEEP_MS = 60_000;

/** The exported schedules, as the zip archive that stock TVM's `JSONDatabase` loads once unpacked. */
export async function saveSchedules(job: Job): Promise<void> {
  const answer = await ask(`jobs/${job.id}/schedules`);
  save(await answer.blob(), `mallorn-${job.id}.zip`);
}

/** All that the page shows of a job, as JSON. */
export function saveReport(job: Job, tasks: readonly Task[], rounds: readonly Round[]): void {
  const text = JSON.stringify({ job, tasks, rounds }, null, 1);
  save(new Blob([text], { type: "application/json" }), `mallorn-${job.id}-report.json`);
}

/** The report in a tab of its own, or as a file where the browser opens none. */
export async function openReport(job: Job): Promise<void> {
  const tab = window.open("", "_blank"); // before the answer is here: later it would be a pop-up
  try {
    const content = await (await ask(`jobs/${job.id}/report`)).blob();
    if (tab === null) return save(content, `mallorn-${job.id}.html`);
    tab.opener = null;
    tab.location.replace(URL.createObjectURL(content)); // kept while this page is open, so that the tab can be reloaded
  } catch (error) {
    tab?.close();
    throw error;
  }
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
