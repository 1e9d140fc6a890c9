/** What a model takes beside other programs, where its job looked for a version for that. */
import type { Job } from "../api/types";
import { latency, plural } from "../format";
import type { Figure } from "./headroom";

export function busy(job: Job): Figure[] {
  const found = job.report?.contention;
  const full = found?.loads.at(-1);
  if (!found || !full) return [];
  const wins = found.wins_from !== null && full.loaded_us !== null;
  const value = latency(wins ? full.loaded_us : full.alone_us);
  const note = wins ? `with the version for busy machines, ${latency(full.alone_us)} without it` : "the version that is best alone is best there";
  return [{ name: `Beside ${plural(full.programs, "program")}`, value, note }];
}
