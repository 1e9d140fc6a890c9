/** What ran when, as lanes of spans; empty stretches of a lane are idle time. */
import type { StageRun, Stint } from "../api/types";

/** A round, or what a worker did besides: then `stage` says what. */
export type Stretch = Stint & { stage?: StageRun["kind"] };

/** `from` and `to` are shares of the window. */
export type Span = { stint: Stretch; from: number; to: number };
export type Lane = { name: string; spans: Span[]; busy: number; measuring: number; trials: number; failures: number };

export type Window = { since: number; now: number };

/** One lane a name, the known ones also where nothing ran on them; a stint without a name is in none. */
export function lanes(stints: readonly Stretch[], nameOf: (stint: Stretch) => string | null, known: readonly string[], window: Window): Lane[] {
  const groups = new Map<string, Stretch[]>(known.map((name) => [name, []]));
  for (const stint of stints) {
    const name = nameOf(stint);
    if (name !== null) groups.set(name, [...(groups.get(name) ?? []), stint]);
  }
  return [...groups].map(([name, own]) => lane(name, own, window)).sort((one, other) => one.name.localeCompare(other.name, undefined, { numeric: true }));
}

/** An import, a training or a finish among the rounds. */
export function stretch({ id, kind, finished_at, ...run }: StageRun): Stretch {
  const nothing = { task_index: null, task_name: null, device: null, trials: 0, failures: 0, measuring_sec: 0 };
  return { ...run, ...nothing, round_id: -id, stage: kind, finished_at, state: finished_at === null ? "leased" : "done" };
}

function lane(name: string, stints: readonly Stretch[], window: Window): Lane {
  const spans = stints.filter((stint) => within(stint, window)).map((stint) => span(stint, window));
  const sum = (of: (stint: Stretch) => number): number => spans.reduce((total, { stint }) => total + of(stint), 0);
  const measuredSec = spans.reduce((total, part) => total + part.stint.measuring_sec * inside(part, window), 0);
  return {
    name,
    spans,
    busy: covered(spans),
    measuring: Math.min(1, measuredSec / (window.now - window.since)),
    trials: sum((stint) => stint.trials),
    failures: sum((stint) => stint.failures),
  };
}

/** One that ended in the millisecond in which it began ran all the same. */
function within({ started_at, finished_at }: Stretch, { since, now }: Window): boolean {
  return (finished_at ?? now) > since && started_at <= now;
}

function span(stint: Stretch, { since, now }: Window): Span {
  const share = (sec: number): number => Math.min(1, Math.max(0, (sec - since) / (now - since)));
  return { stint, from: share(stint.started_at), to: share(stint.finished_at ?? now) };
}

/** How much of a stint lies in the window. */
function inside({ stint, from, to }: Span, { since, now }: Window): number {
  const whole = (stint.finished_at ?? now) - stint.started_at;
  return whole > 0 ? Math.min(1, ((to - from) * (now - since)) / whole) : 1;
}

/** The share of the window in which at least one span runs. */
function covered(spans: readonly Span[]): number {
  let sum = 0;
  let end = 0;
  for (const { from, to } of [...spans].sort((one, other) => one.from - other.from)) {
    sum += Math.max(0, to - Math.max(from, end));
    end = Math.max(end, to);
  }
  return sum;
}

export function errorRate(stints: readonly Pick<Stint, "trials" | "failures">[]): number | null {
  const trials = stints.reduce((sum, stint) => sum + stint.trials, 0);
  return trials === 0 ? null : stints.reduce((sum, stint) => sum + stint.failures, 0) / trials;
}

const STEPS_SEC = [60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800];
const MOST_MARKS = 8;

/** Round moments of the reader's own clock inside a window, with their places in it. */
export function marks({ since, now }: Window, offsetSec: number): { sec: number; at: number }[] {
  const step = STEPS_SEC.find((size) => (now - since) / size <= MOST_MARKS) ?? 28_800;
  const found = [];
  for (let sec = Math.ceil((since + offsetSec) / step) * step - offsetSec; sec <= now; sec += step) {
    found.push({ sec, at: (sec - since) / (now - since) });
  }
  return found;
}

/** The colour of a job: the same in every lane, and after a refresh. */
export function colourOf(jobId: string | null, colours: number): number {
  if (jobId === null) return 0;
  let hash = 7;
  for (const letter of jobId) hash = (hash * 31 + letter.charCodeAt(0)) % 65_521;
  return (hash % colours) + 1;
}
