/** How a device or a worker is, in one word. */
import type { Device, Worker } from "../api/types";

/** A worker says that it lives far more often than this. */
const SILENT_SEC = 60;

export type Health = "measuring" | "idle" | "busy" | "silent" | "stopped";

export function healthOf(device: Device): Health {
  if (hasStopped(device)) return "stopped";
  if (!device.online) return "silent";
  return device.busy ? "measuring" : "idle";
}

export function workerHealth(worker: Worker): Health {
  if (hasStopped(worker)) return "stopped";
  if (worker.seen_sec > SILENT_SEC) return "silent";
  return worker.busy_with === "" ? "idle" : "busy";
}

export const isAway = (health: Health): boolean => health === "silent" || health === "stopped";

/** Those at work first, those that were stopped last. */
const ORDER: readonly Health[] = ["measuring", "busy", "idle", "silent", "stopped"];

export function byHealth<Row>(rows: readonly Row[], of: (row: Row) => Health): Row[] {
  return [...rows].sort((one, other) => ORDER.indexOf(of(one)) - ORDER.indexOf(of(other)));
}

/** What said goodbye is not silent; an older server does not tell. */
function hasStopped(thing: object): boolean {
  return "state" in thing && thing.state === "stopped";
}
