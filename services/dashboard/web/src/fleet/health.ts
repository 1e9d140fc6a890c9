/** How a device or a worker is, in one word. */
import type { Device, Worker } from "../api/types";

/** A worker says that it lives far more often than this. */
const SILENT_SEC = 60;

export type Health = "measuring" | "idle" | "busy" | "silent";

export function healthOf(device: Device): Health {
  if (!device.online) return "silent";
  return device.busy ? "measuring" : "idle";
}

export function workerHealth(worker: Worker): Health {
  if (worker.seen_sec > SILENT_SEC) return "silent";
  return worker.busy_with === "" ? "idle" : "busy";
}
