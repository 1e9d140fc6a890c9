import { describe, expect, it } from "vitest";
import { course, nextGainUs } from "../src/job/history";
import { picture } from "../src/job/picture";
import { lastKnown, lastOr, pointed } from "../src/ui/legend";
import { round, task } from "./samples";

const TASKS = [task(0, { weight: 2, latency_us: 5 }), task(1, { latency_us: 7 })];
const ROUNDS = [round(0, { task_index: 0, found_us: 5 }), round(1, { task_index: 1, found_us: 7 })];
const byTrials = ({ trials }: { trials: number }): number => trials;

describe("the course of a job", () => {
  it("has the sums over the tasks that were timed, before all were", () => {
    expect(course(ROUNDS, TASKS, 1000)).toEqual({
      partial: [{ trials: 8, sec: 1, totalUs: 10 }],
      whole: [{ trials: 16, sec: 2, totalUs: 17 }],
    });
  });

  it("is partial to the end while a task waits for its first time", () => {
    const open = round(1, { task_index: 1, state: "leased", finished_at: null });
    expect(course([ROUNDS[0]!, open], TASKS, 1000).whole).toEqual([]);
  });
});

describe("the chart of a job", () => {
  it("begins at nought and draws one point as a point", () => {
    expect(picture(course(ROUNDS, TASKS, 1000), {}, byTrials)).toEqual({
      x: [0, 8, 16],
      partial: [null, 10, 17],
      whole: [null, null, 17],
      levels: [],
      logarithmic: false,
    });
  });

  it("has a width where nothing had to be measured", () => {
    const known = [round(0, { task_index: 0, before_us: 5, finished_at: null, state: "leased" }), round(1, { task_index: 1, before_us: 7, finished_at: null, state: "leased" })];
    expect(picture(course(known, TASKS, 1000), {}, byTrials)?.x).toEqual([0, 1]);
  });

  it("holds every engine, on a logarithmic scale where they lie far apart", () => {
    const found = picture(course(ROUNDS, TASKS, 1000), { untuned: 170, onnxruntime: 4 }, byTrials);
    expect(found?.levels.map(({ name }) => name)).toEqual(["onnxruntime", "untuned"]);
    expect(found?.logarithmic).toBe(true);
    expect(picture(course(ROUNDS, TASKS, 1000), { tuned: 16 }, byTrials)?.logarithmic).toBe(false);
  });

  it("is left out while nothing was timed", () => {
    expect(picture(course([], [task(0, { latency_us: null })], 1000), {}, byTrials)).toBeNull();
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
