/** Versions gathered into lines: a family's model on a target. */
import type { CostModel } from "../api/types";
import { count, digits, percent } from "../format";

export type Line = { key: string; family: string; target: string; name: string; versions: CostModel[]; active: CostModel | null };

/** Lines by the rows that their newest version learned from, most first; versions newest first. */
export function lines(models: readonly CostModel[]): Line[] {
  const found = new Map<string, Line>();
  for (const model of models) {
    const { family, target, name } = model;
    const key = lineKey(model);
    const line = found.get(key) ?? { key, family, target, name, versions: [], active: null };
    line.versions.push(model);
    if (model.active) line.active = model;
    found.set(key, line);
  }
  for (const line of found.values()) line.versions.sort((one, other) => other.version - one.version);
  return [...found.values()].sort((one, other) => newestRows(other) - newestRows(one));
}

export function lineKey({ family, target, name }: Pick<CostModel, "family" | "target" | "name">): string {
  return `${family}|${name}|${target}`;
}

export function newestRows(line: Line): number {
  return line.versions[0]?.rows ?? 0;
}

/** How many in a hundred pairs of candidates the version in use puts in order; null: it was never judged. */
export function accuracy(line: Line): number | null {
  return (line.active ?? line.versions[0])?.metrics.pairwise ?? null;
}

/** A half is chance. */
const CHANCE = 0.5;
const LITTLE = 0.6;

export function accuracyWords(share: number | null): string {
  if (share === null) return "not judged";
  if (share < CHANCE) return "worse than guessing";
  return share < LITTLE ? "little better than guessing" : "";
}

/** The measures that any version of a line was judged by, most common first. */
export function measures(versions: readonly CostModel[]): string[] {
  const times = new Map<string, number>();
  for (const { metrics } of versions) {
    for (const [name, value] of Object.entries(metrics)) {
      if (typeof value === "number") times.set(name, (times.get(name) ?? 0) + 1);
    }
  }
  return [...times].sort(([, one], [, other]) => other - one).map(([name]) => name);
}

const WORDS: { readonly [name: string]: string } = { training_rows: "rows used", available_rows: "chosen from", foreign_rows: "of other tuners", groups: "tasks", pairwise: "pairs in order" };
/** Shares of all that there is. */
const SHARES = /pairwise|accuracy|top|coverage/;

export function measureTitle(name: string): string {
  const words = WORDS[name] ?? name.replaceAll("_", " ");
  return words.charAt(0).toUpperCase() + words.slice(1);
}

export function measureWords(name: string, value: unknown): string {
  if (typeof value !== "number") return "–";
  if (SHARES.test(name) && value >= 0 && value <= 1) return percent(value);
  return Number.isInteger(value) ? count(value) : digits(value);
}

/** The splits beside the one that all measures are of, each with its pairs in order. */
export function otherSplits({ split, splits }: CostModel["metrics"]): string {
  const others = Object.entries(splits).filter(([name]) => name !== split);
  return others.map(([name, figures]) => `${name} ${measureWords("pairwise", figures.pairwise)}`).join(" · ");
}

/** Whether going to a version is going back. */
export function isBack(model: CostModel, line: Line): boolean {
  return line.active !== null && model.version < line.active.version;
}
