/** The measurements of one task of a job, oldest first, and what a picture of them needs. */
import { get } from "../api/client";
import type { MeasuredRecord, Page } from "../api/types";

const PAGE_RECORDS = 1000;

/** Rows never change and come newest first: only those behind the last known one are asked for. */
export async function loadRecords(
  jobId: string,
  workload: string,
  signal: AbortSignal,
  last: readonly MeasuredRecord[] | undefined,
): Promise<MeasuredRecord[]> {
  const newestKnown = last?.at(-1)?.id ?? -1;
  const fresh: MeasuredRecord[] = [];
  let cursor: string | null = null;
  do {
    const page: Page<MeasuredRecord> = await get("records", { job: jobId, workload, limit: PAGE_RECORDS, cursor }, signal);
    fresh.push(...page.items.filter((record) => record.id > newestKnown));
    cursor = page.items.some((record) => record.id <= newestKnown) ? null : page.next_cursor;
  } while (cursor !== null);
  return [...(last ?? []), ...fresh.reverse()];
}

export type Scatter = {
  /** Seconds since the job's submit, ascending. */
  x: number[];
  origins: { name: string; us: (number | null)[] }[];
  failures: (number | null)[];
  best: (number | null)[];
  spread: ([number, number] | null)[];
};

/** Trials by the idea they came from; failures stand on a line above all times. */
export function scatter(records: readonly MeasuredRecord[], createdAt: number): Scatter {
  const trials = records.filter((record) => record.kind === "trial").sort((one, other) => one.created_at - other.created_at);
  const times = trials.flatMap((record) => record.latency_us ?? []);
  const top = times.length > 0 ? Math.max(...times) * 1.15 : 1;
  const names = [...new Set(trials.map((record) => record.origin))].sort();
  let least: number | null = null;
  return {
    x: trials.map((record) => record.created_at - createdAt),
    origins: names.map((name) => ({ name, us: trials.map((record) => (record.origin === name ? record.latency_us : null)) })),
    failures: trials.map((record) => (record.outcome === "ok" ? null : top)),
    best: trials.map((record) => {
      if (record.latency_us !== null && (least === null || record.latency_us < least)) least = record.latency_us;
      return least;
    }),
    spread: trials.map((record) => (record.run_us.length < 2 ? null : [Math.min(...record.run_us), Math.max(...record.run_us)])),
  };
}

export type Pair = { predicted: number; us: number };

/** What the cost model said and what was measured, by rising prediction. */
export function pairs(records: readonly MeasuredRecord[]): Pair[] {
  return records
    .flatMap(({ predicted, latency_us: us }) => (predicted === null || us === null ? [] : [{ predicted, us }]))
    .sort((one, other) => one.predicted - other.predicted);
}

/** Spearman's: 1 where a higher score always went with a lower latency; null where nothing can be said. */
export function rankAgreement(found: readonly Pair[]): number | null {
  if (found.length < 3) return null;
  const scores = ranks(found.map((pair) => pair.predicted));
  const speeds = ranks(found.map((pair) => -pair.us));
  return correlation(scores, speeds);
}

/** Places from 0; equals share the middle of theirs. */
function ranks(values: readonly number[]): number[] {
  const order = values.map((value, at) => ({ value, at })).sort((one, other) => one.value - other.value);
  const places = new Array<number>(values.length).fill(0);
  for (let start = 0; start < order.length; ) {
    let end = start;
    while (end + 1 < order.length && order[end + 1]!.value === order[start]!.value) end += 1;
    for (let at = start; at <= end; at += 1) places[order[at]!.at] = (start + end) / 2;
    start = end + 1;
  }
  return places;
}

function correlation(one: readonly number[], other: readonly number[]): number | null {
  const middle = (one.length - 1) / 2;
  let product = 0;
  let left = 0;
  let right = 0;
  for (let at = 0; at < one.length; at += 1) {
    const [a, b] = [one[at]! - middle, other[at]! - middle];
    product += a * b;
    left += a * a;
    right += b * b;
  }
  return left > 0 && right > 0 ? product / Math.sqrt(left * right) : null;
}
