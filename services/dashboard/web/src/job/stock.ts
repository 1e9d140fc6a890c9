/** What logs of stock MetaSchedule that were brought in tell of a job's tasks. */
import type { Task } from "../api/types";
import { latency, versus } from "../format";
import type { Figure } from "./headroom";

/** Whether they tell of any. */
export const isKnown = (tasks: readonly Task[]): boolean => tasks.some((task) => task.stock_us !== null);

/** Its least time, whose host nobody knows: it need not compare with ours. */
export function stockOf(task: Task): Figure | null {
  if (task.stock_us === null) return null;
  const beside = task.latency_us === null ? [] : [`${versus(task.stock_us / task.latency_us)} here`];
  const note = ["as its logs tell, on a host that they do not name", ...beside].join("; ");
  return { name: "Stock's tuner", value: latency(task.stock_us), note };
}
