import { describe, expect, it } from "vitest";
import { curve, reached, ways } from "../src/job/history";
import { round, task } from "./samples";

const TASKS = [task(0, { weight: 2, latency_us: 5 }), task(1, { latency_us: 7 })];

describe("the curve of a job", () => {
  it("begins when every task has a time, and only falls", () => {
    const rounds = [
      round(0, { task_index: 0, best_us: 8 }),
      round(1, { task_index: 1, best_us: 7 }),
      round(2, { task_index: 0, previous_best_us: 8, best_us: 9 }),
      round(3, { task_index: 0, previous_best_us: 8, best_us: 5 }),
    ];
    expect(curve(rounds, TASKS, 1000)).toEqual([
      { trials: 16, sec: 2, totalUs: 23 },
      { trials: 24, sec: 3, totalUs: 23 },
      { trials: 32, sec: 4, totalUs: 17 },
    ]);
  });

  it("begins before the first trial where the dataset knew every task", () => {
    const rounds = [round(0, { task_index: 0, previous_best_us: 9, best_us: 5 }), round(1, { task_index: 1, previous_best_us: 7, best_us: 8 })];
    expect(curve(rounds, TASKS, 1000).map((point) => [point.trials, point.totalUs])).toEqual([
      [0, 25],
      [8, 17],
      [16, 17],
    ]);
  });

  it("goes in the order in which rounds ended, not in which they were planned", () => {
    const rounds = [
      round(0, { task_index: 0, previous_best_us: 9, best_us: 5, finished_at: 1050 }),
      round(1, { task_index: 1, previous_best_us: 7, best_us: 6, finished_at: 1020 }),
    ];
    expect(curve(rounds, TASKS, 1000).map((point) => point.sec)).toEqual([0, 20, 50]);
  });

  it("leaves out tasks that were too small to be measured", () => {
    const tasks = [...TASKS, task(2, { latency_us: null })];
    const rounds = [round(0, { task_index: 0, best_us: 5 }), round(1, { task_index: 1, best_us: 7 })];
    expect(curve(rounds, tasks, 1000).at(-1)?.totalUs).toBe(17);
  });

  it("is empty while nothing was measured", () => {
    expect(curve([], [task(0, { latency_us: null })], 1000)).toEqual([]);
    expect(curve([round(0, { state: "leased", finished_at: null })], TASKS, 1000)).toEqual([]);
  });
});

describe("what a job came to", () => {
  it("is its own, though other jobs found better since", () => {
    const tasks = [task(0, { latency_us: 3 }), task(1, { latency_us: 7 })];
    expect([...reached([round(0, { task_index: 0, previous_best_us: 9, best_us: 5 })], tasks)]).toEqual([[0, 5], [1, 7]]);
  });
});

describe("the way of a task", () => {
  it("is its best after each round, from what was known before", () => {
    const rounds = [round(0, { previous_best_us: 9, best_us: 10 }), round(1, { previous_best_us: 9, best_us: 4 })];
    expect(ways(rounds).get(0)?.best).toEqual([9, 9, 4]);
  });

  it("tells the newest forecast's gain, weighted", () => {
    const forecast = { expected_us: 4, low_us: 3, high_us: 5, gain_us: 2, gain_probability: 0.5 };
    const way = ways([round(0, { weight: 3, forecast })]).get(0);
    expect(way).toEqual({ best: [], expectedGainUs: 6, promise: 0.5 });
  });
});
