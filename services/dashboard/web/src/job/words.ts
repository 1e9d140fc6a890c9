/** A round's story in words. */
import type { MeasuredRecord, Round } from "../api/types";
import { latency, plural } from "../format";

export function expected(round: Round): string {
  const forecast = round.forecast;
  return forecast ? `${latency(forecast.low_us)} to ${latency(forecast.high_us)}` : "";
}

/** Why it was made, in the signs of this page, and which base proposed it, if one did. */
export function why(round: Round): string {
  return [inSigns(round.why), round.proposal].filter(Boolean).join("; ");
}

/** The planner writes plain letters. */
function inSigns(words: string): string {
  return words.replace(/\bus\b/g, "µs").replace(/ x (?=\d)/g, " × ");
}

/** What became of a round. */
export function found(round: Round): string {
  switch (round.state) {
    case "queued":
      return "waits for a worker";
    case "leased":
      return `${round.trials} of ${round.size} measured`;
    case "poison":
      return `given up: ${round.error.split("\n")[0] ?? ""}`;
    case "cancelled":
      return "cancelled";
    case "done":
      return measured(round);
  }
}

function measured(round: Round): string {
  if (round.trials === 0) return "nothing left to try";
  if (round.best_us === null) return `nothing valid, ${plural(round.failures, "candidate")} failed`;
  return latency(round.best_us);
}

/** What it took off the whole model's time. */
export function gain(round: Round): string {
  if (round.gain_us === null) return "";
  return round.gain_us > 0 ? `−${latency(round.gain_us)}` : "no gain";
}

/** Whether the forecast held. */
export function verdict(round: Round): string {
  if (round.is_in_interval === null) return "";
  return round.is_in_interval ? "as expected" : (round.best_us ?? 0) < (round.forecast?.low_us ?? 0) ? "better than expected" : "worse than expected";
}

/** How many forecasts could be judged, and how many intervals held what was found. */
export function calibration(rounds: readonly Round[]): { judged: number; held: number } {
  const judged = rounds.filter((round) => round.is_in_interval !== null);
  return { judged: judged.length, held: judged.filter((round) => round.is_in_interval).length };
}

const OUTCOMES: { readonly [outcome: string]: string } = {
  build_error: "did not build",
  left_unbuilt: "left unbuilt: unrolls too far",
  build_timeout: "took too long to build",
  run_error: "failed on the device",
  run_timeout: "took too long on the device",
  wrong_result: "computed a wrong result",
  worker_lost: "lost with their worker",
  cancelled: "cancelled",
  not_recorded: "not in the recording",
};

/** As mallorn/core/outcomes.py tells it: what nobody built by choice is told as what it is, and is no failure. */
export function outcomeOf({ outcome, error }: Pick<MeasuredRecord, "outcome" | "error">): string {
  return outcome === "build_error" && error?.startsWith("not compiled: ") ? "left_unbuilt" : outcome;
}

export function outcomeWords(outcome: string): string {
  return OUTCOMES[outcome] ?? outcome.replaceAll("_", " ");
}
