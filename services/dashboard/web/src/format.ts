/** Numbers with their units, times in the reader's own zone. */

const DASH = "–";

/** Three or four significant digits with the unit that fits: µs, ms or s. */
export function latency(us: number | null | undefined): string {
  if (us === null || us === undefined) return DASH;
  if (us < 1000) return `${digits(us)} µs`;
  return us < 1e6 ? `${digits(us / 1e3)} ms` : `${digits(us / 1e6)} s`;
}

/** The same without zeros at the end, for an axis. */
export function shortLatency(us: number, places = 4): string {
  const short = (value: number): string => value.toLocaleString(undefined, { maximumSignificantDigits: places });
  if (us < 1000) return `${short(us)} µs`;
  return us < 1e6 ? `${short(us / 1e3)} ms` : `${short(us / 1e6)} s`;
}

/** Latencies along an axis, with as many digits as tell them apart. */
export function apart(ticks: readonly number[]): string[] {
  const named = [4, 5, 6, 7].map((places) => ticks.map((us) => shortLatency(us, places)));
  return named.find((words) => new Set(words).size === words.length) ?? named[0] ?? [];
}

export function digits(value: number): string {
  const size = Math.abs(value);
  if (value > 0 && size < 0.001) return "<0.001";
  const places = size >= 1000 || Number.isInteger(value) ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : 3;
  return value.toLocaleString(undefined, { minimumFractionDigits: places, maximumFractionDigits: places });
}

export function count(value: number): string {
  return value.toLocaleString();
}

/** "1 task", "3 tasks". */
export function plural(value: number, noun: string, nouns = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : nouns}`;
}

export function flops(value: number): string {
  const units = ["FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP"];
  const at = Math.max(0, units.findLastIndex((_unit, power) => value >= 1000 ** power));
  return `${at === 0 ? count(value) : digits(value / 1000 ** at)} ${units[at]}`;
}

export function percent(share: number | null): string {
  return share === null ? DASH : `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
}

export function times(factor: number | null): string {
  if (factor === null) return DASH;
  if (factor < 0.1) return `${factor.toPrecision(2)}×`;
  return `${factor.toFixed(factor < 10 ? 2 : factor < 100 ? 1 : 0)}×`;
}

/** "1.4× faster", "1.9× slower". */
export function versus(factor: number | null): string {
  if (factor === null) return DASH;
  return factor >= 1 ? `${times(factor)} faster` : `${times(1 / factor)} slower`;
}

export function bytes(size: number): string {
  if (size < 1e3) return `${size} B`;
  if (size < 1e6) return `${digits(size / 1e3)} kB`;
  return size < 1e9 ? `${digits(size / 1e6)} MB` : `${digits(size / 1e9)} GB`;
}

/** "8 s", "3 min 20 s", "2 h 5 min", "4 d 1 h". */
export function duration(sec: number | null): string {
  if (sec === null) return DASH;
  const whole = Math.max(0, Math.round(sec));
  if (whole < 60) return `${whole} s`;
  const steps: [number, string, number, string][] = [
    [60, "min", 1, "s"],
    [3600, "h", 60, "min"],
    [86_400, "d", 3600, "h"],
  ];
  const [big, bigUnit, small, smallUnit] = steps.findLast(([size]) => whole >= size) ?? steps[0]!;
  const rest = Math.floor((whole % big) / small);
  return `${Math.floor(whole / big)} ${bigUnit}${rest > 0 ? ` ${rest} ${smallUnit}` : ""}`;
}

export function clock(sec: number | null): string {
  if (sec === null) return DASH;
  const moment = new Date(sec * 1000);
  if (moment.toDateString() === new Date().toDateString()) return moment.toLocaleString(undefined, { timeStyle: "short" });
  return date(sec);
}

/** The day and the time, whatever day it is. */
export function date(sec: number | null): string {
  if (sec === null) return DASH;
  const moment = new Date(sec * 1000);
  const year = moment.getFullYear() === new Date().getFullYear() ? {} : { year: "numeric" as const };
  return moment.toLocaleString(undefined, { ...year, month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
}

/** "8 s", "3 min", "2 h", "4 d": how long ago, roughly. */
export function age(sec: number): string {
  return duration(sec).split(" ").slice(0, 2).join(" ");
}

/** A number that is far below one, as the error of a computation. */
export function tiny(value: number): string {
  return value === 0 ? "0" : value.toExponential(1);
}

/** A target in few words: its kind or tag, its processor and its cores. */
export function target(text: string): string {
  let parsed: unknown;
  try {
    parsed = JSON.parse(text);
  } catch {
    return text;
  }
  if (typeof parsed !== "object" || parsed === null) return text;
  const fields = parsed as { [name: string]: unknown };
  const model = fields["mcpu"] ?? fields["model"] ?? fields["arch"] ?? fields["tag"];
  const cores = fields["num-cores"];
  const words = [fields["kind"], model, cores === undefined ? undefined : `${String(cores)} cores`];
  return words.filter((word) => word !== undefined && word !== "").join(" · ") || text;
}
