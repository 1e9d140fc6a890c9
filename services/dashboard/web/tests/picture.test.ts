import { describe, expect, it } from "vitest";
import { curve, nextGainUs } from "../src/job/history";
import { picture } from "../src/job/picture";
import { lastKnown, lastOr, pointed } from "../src/ui/axes";
import { round, task } from "./samples";

const TASKS = [task(0, { weight: 2, latency_us: 5 }), task(1, { latency_us: 7 })];
const ROUNDS = [round(0, { task_index: 0, best_us: 5 }), round(1, { task_index: 1, best_us: 7 })];
const byTrials = ({ trials }: { trials: number }): number => trials;

describe("the chart of a job", () => {
  const drawn = (engines = {}): ReturnType<typeof picture> => picture(curve(ROUNDS, TASKS, 1000), engines, byTrials);

  it("begins where every task has a time, and shows from nought on", () => {
    expect(drawn()).toEqual({ x: [0, 16], sums: [null, 17], levels: [], beyond: [], logarithmic: false });
  });

  it("is left out while a task waits for its first time, whose absence would make the sum look small", () => {
    const open = round(1, { task_index: 1, state: "leased", finished_at: null });
    expect(picture(curve([ROUNDS[0]!, open], TASKS, 1000), {}, byTrials)).toBeNull();
    expect(picture(curve([], [task(0, { latency_us: null })], 1000), {}, byTrials)).toBeNull();
  });

  it("has a width where nothing had to be measured", () => {
    const known = [round(0, { task_index: 0, previous_best_us: 5, finished_at: null, state: "leased" }), round(1, { task_index: 1, previous_best_us: 7, finished_at: null, state: "leased" })];
    expect(picture(curve(known, TASKS, 1000), {}, byTrials)?.x).toEqual([0, 1]);
  });

  it("has a line for every engine that compares, and tells others apart", () => {
    const found = drawn({ untuned: 170, onnxruntime: 9, tuned: 16 });
    expect(found?.levels.map(({ name }) => name)).toEqual(["onnxruntime", "tuned, whole model"]);
    expect(found?.beyond).toEqual([{ name: "untuned", us: 170 }]);
    expect(found?.logarithmic).toBe(false);
    expect(drawn({ untuned: 60, onnxruntime: 5 })?.logarithmic).toBe(true);
  });
});

describe("the next gain of a task", () => {
  const way = { best: [], expectedGainUs: 2300, promise: null };

  it("is never more than all that the task takes", () => {
    expect(nextGainUs(task(0, { weighted_latency_us: 270 }), way)).toBe(270);
    expect(nextGainUs(task(0, { weighted_latency_us: 9000 }), way)).toBe(2300);
  });

  it("is none where no round follows", () => {
    expect([nextGainUs(task(0, { state: "done" }), way), nextGainUs(task(0, { state: "retired" }), way)]).toEqual([null, null]);
  });
});

describe("a legend at which nobody points", () => {
  const chart = { data: [[1, 2, 3], [5, 4, null]] } as never;

  it("reads a line's last value", () => {
    expect(lastKnown([5, 4, null])).toBe(4);
    expect(lastOr(String)(chart, null as never, 1, null)).toBe("4");
    expect(lastOr(String)(chart, 5, 1, 0)).toBe("5");
  });

  it("is silent of points that do not follow one another", () => {
    expect(pointed(String)(chart, null as never, 1, null)).toBe("");
    expect(pointed(String)(chart, 5, 1, 0)).toBe("5");
  });
});
