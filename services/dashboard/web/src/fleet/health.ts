/** How devices and workers are, as the API says it in one word, and what their machines compute and move. */
import type { Device, Worker } from "../api/types";
import { digits } from "../format";

export type Health = Device["state"] | Worker["state"];
type Part = { state: Health };

/** Nobody can count on it: it may have died, or was stopped. */
export const isAway = ({ state }: Part): boolean => state === "silent" || state === "stopped";

/** Those at work first, those that were stopped last. */
const ORDER: readonly Health[] = ["measuring", "busy", "idle", "silent", "stopped"];

export function byHealth<Row extends Part>(rows: readonly Row[]): Row[] {
  return [...rows].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state));
}

const KILO = 1024;

/** The peak of single precision, or that there is none yet. */
export function peakWords({ machine: found }: Device): string {
  const peak = found?.machine?.gflops["float32"];
  return peak === undefined ? "not measured" : `${digits(peak)} GFLOP/s`;
}

/** All that was measured, or why nothing was. */
export function machineWords({ machine: found }: Device): string {
  if (!found) return "not measured yet";
  if (!found.machine) return `not measured: ${found.reason}`;
  const { cores, gflops, lanes, in_flight, registers, caches, memory_gbytes_per_sec, fork_us } = found.machine;
  const peaks = Object.entries(gflops).map(([name, rate]) => `${name} ${digits(rate)}`);
  const levels = caches.map(({ bytes, gbytes_per_sec }) => `${size(bytes)} at ${digits(gbytes_per_sec)} GB/s`);
  return [
    `GFLOP/s on ${cores} cores: ${peaks.join(", ")}`,
    `vectors of ${lanes}, ${in_flight} to ${registers} summed at once`,
    `caches: ${levels.join(", ")}`,
    `memory: ${digits(memory_gbytes_per_sec)} GB/s`,
    `a parallel loop starts in ${digits(fork_us)} µs`,
  ].join("\n");
}

function size(bytes: number): string {
  const kilo = bytes / KILO;
  return kilo < KILO ? `${Math.round(kilo)} KB` : `${Math.round(kilo / KILO)} MB`;
}
