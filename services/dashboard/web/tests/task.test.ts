import { afterEach, describe, expect, it, vi } from "vitest";
import * as client from "../src/api/client";
import { byTarget, fitting, growth, lookupQuery } from "../src/dataset/counts";
import { expected, found, gain, verdict, why } from "../src/job/words";
import { loadRecords, pairs, pairsInOrder, scatter } from "../src/task/measurements";
import { record, round } from "./samples";

describe("the scatter of a task", () => {
  const records = [
    record(1, { latency_us: 20, run_us: [19, 21], origin: "random" }),
    record(2, { outcome: "build_error", latency_us: null, run_us: [] }),
    record(3, { latency_us: 8, run_us: [8] }),
    record(4, { kind: "finish", latency_us: 1 }),
  ];

  it("has one series an origin and puts failures above all times", () => {
    const points = scatter(records, 1000);
    expect(points.x).toEqual([1, 2, 3]);
    expect(points.origins).toEqual([
      { name: "mutation", us: [null, null, 8] },
      { name: "random", us: [20, null, null] },
    ]);
    expect(points.best).toEqual([20, 20, 8]);
    expect(points.failures.map((us) => us !== null && us > 20)).toEqual([false, true, false]);
    expect(points.spread).toEqual([[19, 21], null, null]);
  });

  it("has no failure where a candidate was left unbuilt by choice", () => {
    const left = record(1, { outcome: "build_error", error: "not compiled: unrolled it writes in 900 places", latency_us: null, run_us: [] });
    expect(scatter([left], 1000).failures).toEqual([null]);
  });
});

describe("a cost model", () => {
  const rows = (round: number, found: [number, number][]) =>
    found.map(([predicted, latency_us], at) => record(round * 100 + at, { round_id: round, predicted, latency_us }));

  it("predicts a time from the best that was known when the round began", () => {
    const rounds = [round(1, { previous_best_us: 100 }), round(2, { previous_best_us: null })];
    const found = pairs([...rows(1, [[Math.log(0.5), 150], [0, 90]]), ...rows(2, [[0, 50]])], rounds);
    expect(found.map(({ predictedUs, us }) => [Math.round(predictedUs), us])).toEqual([[100, 90], [200, 150]]);
  });

  it("is judged by the order within each round only", () => {
    const early = rows(1, [[-0.1, 900], [-0.2, 1000]]);
    const late = rows(2, [[-1.1, 90], [-1.2, 100]]);
    expect(pairsInOrder([...early, ...late])).toBe(1);
    expect(pairsInOrder(rows(1, [[1, 10], [2, 20], [3, 5]]))).toBeCloseTo(2 / 3);
  });

  it("is not judged where it cannot tell candidates apart", () => {
    expect(pairsInOrder(rows(1, [[1, 10], [1, 20]]))).toBeNull();
    expect(pairsInOrder([])).toBeNull();
  });
});

describe("loading measurements", () => {
  afterEach(() => vi.restoreAllMocks());

  it("asks only for what is new, and keeps the order of ids", async () => {
    const get = vi.spyOn(client, "get");
    get.mockResolvedValueOnce({ items: [record(4), record(3)], next_cursor: "x" });
    get.mockResolvedValueOnce({ items: [record(2), record(1)], next_cursor: "y" });
    const rows = await loadRecords("j1", "w0", new AbortController().signal, [record(1), record(2)]);
    expect(rows.map(({ id }) => id)).toEqual([1, 2, 3, 4]);
    expect(get).toHaveBeenCalledTimes(2);
  });
});

describe("a round in words", () => {
  const forecast = { expected_us: 9, low_us: 8, high_us: 12, gain_us: 1, gain_probability: 0.5 };

  it("tells what was expected, what was found and what it brought", () => {
    const won = round(0, { forecast, best_us: 7, gain_us: 3, is_in_interval: false });
    expect([expected(won), found(won), gain(won), verdict(won)]).toEqual(["8 µs to 12 µs", "7 µs", "−3 µs", "better than expected"]);
    expect(verdict(round(0, { forecast, best_us: 20, is_in_interval: false }))).toBe("worse than expected");
    expect(gain(round(0, { gain_us: 0 }))).toBe("no gain");
  });

  it("tells why it was made and which base proposed it", () => {
    expect(why(round(0))).toBe("it promises most");
    expect(why(round(0, { proposal: "first round proposed by base:matmul/xgboost@1" }))).toBe("it promises most; first round proposed by base:matmul/xgboost@1");
  });

  it("tells why nothing was found", () => {
    expect(found(round(0, { trials: 0 }))).toBe("nothing left to try");
    expect(found(round(0, { failures: 8 }))).toBe("nothing valid, 8 candidates failed");
    expect(found(round(0, { state: "leased", trials: 3 }))).toBe("3 of 8 measured");
    expect(found(round(0, { state: "poison", error: "three workers died\nthe last" }))).toBe("given up: three workers died");
  });
});

describe("sums", () => {
  const row = (id: number, workload: string, target: string) => ({
    ...{ id, workload, workload_name: `fused_${workload}`, target, job_id: null, context_id: 1 },
    ...{ latency_us: 1, low_us: 1, high_us: 1, is_bound: false, inside_model: false, max_error: 0, created_at: 0 },
  });
  const rows = [row(1, "w1", "a"), row(2, "w1", "b"), row(3, "w1", "b"), row(4, "w2", "b")];

  it("count schedules and workloads by target", () => {
    expect(byTarget(rows)).toEqual([
      { target: "b", schedules: 3, workloads: 2 },
      { target: "a", schedules: 1, workloads: 1 },
    ]);
    expect(fitting(rows, "b", "W2").map(({ id }) => id)).toEqual([4]);
    expect(lookupQuery(" conv2d 1x56x56x64 float32", "b")).toEqual({ operator: "conv2d", shape: ["1x56x56x64"], dtype: "float32", target: "b" });
  });
});

describe("the growth of the dataset", () => {
  it("gives every day its whole length", () => {
    const days = [
      { day: "1970-01-02", count: 5, total: 5 },
      { day: "1970-01-04", count: 3, total: 8 },
    ];
    expect(growth(days)).toEqual([
      [86_400, 259_200, 345_600],
      [5, 8, 8],
    ]);
    expect(growth([])).toEqual([[], []]);
  });
});

describe("whose idea a trial was", () => {
  it("is told by searcher and move, or by searcher alone where there are more than colours", () => {
    const trials = (origins: readonly string[]) => scatter(origins.map((origin, id) => record(id, { origin })), 0).origins.map(({ name }) => name);
    expect(trials(["ga:mutation", "ga:random"])).toEqual(["ga:mutation", "ga:random"]);
    expect(trials(["ga:a", "ga:b", "ga:c", "sa:a", "sa:b", "sa:c", "random"])).toEqual(["ga", "random", "sa"]);
  });
});

describe("why a round was made", () => {
  it("is told with the signs of the page", () => {
    expect(why(round(0, { why: "expects 8.6 us off 469 us x 2 in 3.7 s" }))).toBe("expects 8.6 µs off 469 µs × 2 in 3.7 s");
  });
});
