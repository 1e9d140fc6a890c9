import { describe, expect, it } from "vitest";
import type { Schedule } from "../src/api/types";
import { diffLines, parting } from "../src/task/diff";
import { chosenPair, faster } from "../src/task/pair";

const told = (before: string, after: string): string[] =>
  diffLines(before, after).map(({ same, left, right }) => `${same ? "=" : "≠"} ${left?.text ?? "∅"} | ${right?.text ?? "∅"}`);

describe("two programs line by line", () => {
  it("keep what both have, and put what took a line's place beside it", () => {
    expect(told("a\nb\nc\nd", "a\nx\nc\ny\nd")).toEqual(["= a | a", "≠ b | x", "= c | c", "≠ ∅ | y", "= d | d"]);
  });

  it("are the same when they are", () => {
    expect(diffLines("a\nb", "a\nb").every((line) => line.same)).toBe(true);
  });

  it("find a block that moved behind new lines", () => {
    expect(told("a\nb", "x\ny\na\nb\nz")).toEqual(["≠ ∅ | x", "≠ ∅ | y", "= a | a", "= b | b", "≠ ∅ | z"]);
  });

  it("count lines on each side from one", () => {
    const last = diffLines("a\nb", "x\na\nb").at(-1);
    expect([last?.left?.number, last?.right?.number]).toEqual([2, 3]);
  });

  it("show every line of texts that are too long to be searched", () => {
    const long = (letter: string): string => Array.from({ length: 3100 }, (_, at) => `${letter}${at}`).join("\n");
    const lines = diffLines(`same\n${long("a")}`, `same\n${long("b")}`);
    expect(lines.length).toBe(3101);
    expect(lines.filter((line) => line.same).length).toBe(1);
  });

  it("differ within a line between what they share in front and behind", () => {
    expect(parting("decision=[1, 4])", "decision=[2, 4])")).toEqual({ start: 10, endOne: 11, endOther: 11 });
    expect(parting("aa", "aaa")).toEqual({ start: 2, endOne: 2, endOther: 3 });
  });

  it("are two lines, and not one that was changed, where they share little", () => {
    expect(parting("    for i in T.grid(64)", "    with T.sblock(root)")).toBeNull();
  });
});

function schedule(id: number, changes: Partial<Schedule> = {}): Schedule {
  const times = { latency_us: 10, low_us: 10, high_us: 10, is_bound: false, inside_model: false, max_error: 0, created_at: 0 };
  return { id, job_id: "other", workload: "w", workload_name: "w", target: "{}", context_id: 1, ...times, ...changes };
}

describe("which schedule is shown", () => {
  const all = [schedule(3), schedule(7, { job_id: "j1" })];

  it("is the chosen one, else the job's own, else the fastest", () => {
    expect(chosenPair(all, "j1", "3", undefined).shown.id).toBe(3);
    expect(chosenPair(all, "j1", "99", undefined).shown.id).toBe(7);
    expect(chosenPair(all, "j2", undefined, undefined).shown.id).toBe(3);
  });

  it("is never beside itself", () => {
    expect(chosenPair(all, "j1", "3", "3").other).toBeNull();
    expect(chosenPair(all, "j1", "3", "7").other?.id).toBe(7);
  });
});

describe("how two schedules compare", () => {
  it("is said only where their times do, and are apart", () => {
    const slow = schedule(1, { latency_us: 30, low_us: 28, high_us: 32 });
    expect(faster(schedule(2), slow)).toBe("It is 3.00× faster than #1.");
    expect(faster(slow, schedule(2))).toBe("It is 3.00× slower than #2.");
    expect(faster(schedule(2, { high_us: 29 }), slow)).toContain("overlap");
    expect(faster(schedule(2, { context_id: 9 }), slow)).toContain("do not compare");
  });
});
