/** The measurements of one task of a job, oldest first, and what a picture of them needs. */
import { get } from "../api/client";
import type { MeasuredRecord, Page, Round } from "../api/types";
import { outcomeOf } from "../job/words";

const PAGE_RECORDS = 1000;
const COLOURS = 6;

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
  const ideaOf = ideas(trials);
  const names = [...new Set(trials.map(ideaOf))].sort();
  let least: number | null = null;
  return {
    x: trials.map((record) => record.created_at - createdAt),
    origins: names.map((name) => ({ name, us: trials.map((record) => (ideaOf(record) === name ? record.latency_us : null)) })),
    failures: trials.map((record) => (["ok", "left_unbuilt"].includes(outcomeOf(record)) ? null : top)),
    best: trials.map((record) => {
      if (record.latency_us !== null && (least === null || record.latency_us < least)) least = record.latency_us;
      return least;
    }),
    spread: trials.map((record) => (record.run_us.length < 2 ? null : [Math.min(...record.run_us), Math.max(...record.run_us)])),
  };
}

/** Whose idea a trial was: the searcher and its move, or where those are more than colours the searcher. */
function ideas(trials: readonly MeasuredRecord[]): (record: MeasuredRecord) => string {
  const many = new Set(trials.map((record) => record.origin)).size > COLOURS;
  return ({ origin }) => (many ? (origin.split(":", 1)[0] ?? origin) : origin);
}

export type Pair = { predictedUs: number; us: number };

/**
 * What the cost model said and what was measured, by rising prediction. A score is the log of how far a candidate is
 * from the best that was known when its round began: with that best it is a latency.
 */
export function pairs(records: readonly MeasuredRecord[], rounds: readonly Round[]): Pair[] {
  const before = new Map(rounds.map((round) => [round.id, round.previous_best_us]));
  return records
    .flatMap(({ predicted, latency_us: us, round_id: round }) => {
      const best = round === null ? null : (before.get(round) ?? null);
      return predicted === null || us === null || best === null ? [] : [{ predictedUs: best / Math.exp(predicted), us }];
    })
    .sort((one, other) => one.predictedUs - other.predictedUs);
}

/** The share of pairs within a round that the model had in order: a half is chance; null where none can be told. */
export function pairsInOrder(records: readonly MeasuredRecord[]): number | null {
  const rounds = new Map<number, { score: number; us: number }[]>();
  for (const { predicted, latency_us: us, round_id: round } of records) {
    if (predicted === null || us === null || round === null) continue;
    rounds.set(round, [...(rounds.get(round) ?? []), { score: predicted, us }]);
  }
  let [right, judged] = [0, 0];
  for (const batch of rounds.values()) {
    batch.forEach((one, at) => {
      for (const other of batch.slice(at + 1)) {
        if (one.us === other.us || one.score === other.score) continue;
        judged += 1;
        if (one.score > other.score === one.us < other.us) right += 1;
      }
    });
  }
  return judged === 0 ? null : right / judged;
}
