/** How devices and workers are, as the API says it in one word. */
import type { Device, Worker } from "../api/types";

export type Health = Device["state"] | Worker["state"];
type Part = { state: Health };

/** Nobody can count on it: it may have died, or was stopped. */
export const isAway = ({ state }: Part): boolean => state === "silent" || state === "stopped";

/** Those at work first, those that were stopped last. */
const ORDER: readonly Health[] = ["measuring", "busy", "idle", "silent", "stopped"];

export function byHealth<Row extends Part>(rows: readonly Row[]): Row[] {
  return [...rows].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
}
