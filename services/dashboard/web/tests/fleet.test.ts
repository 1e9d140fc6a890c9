import { describe, expect, it } from "vitest";
import type { Device, StageRun, Stint } from "../src/api/types";
import { colourOf, errorRate, lanes, marks, stretch } from "../src/fleet/lanes";
import { machineWords, peakWords } from "../src/fleet/health";

const WINDOW = { since: 1000, now: 2000 };

function stint(round: number, started: number, finished: number | null, changes: Partial<Stint> = {}): Stint {
  const job = { job_id: "j", job_name: "mlp", task_index: 0, task_name: "t" };
  return { round_id: round, ...job, state: "done", worker: "w1", device: "d1", trials: 8, failures: 0, measuring_sec: 50, started_at: started, finished_at: finished, ...changes };
}

describe("a lane", () => {
  it("is busy where at least one round runs", () => {
    const [lane] = lanes([stint(1, 1100, 1300), stint(2, 1200, 1400), stint(3, 1900, null)], ({ worker }) => worker, [], WINDOW);
    expect(lane?.busy).toBeCloseTo(0.4);
    expect(lane?.spans.map(({ from, to }) => [from, to])).toEqual([[0.1, 0.3], [0.2, 0.4], [0.9, 1]]);
  });

  it("counts of a round that began earlier only what lies in the window", () => {
    const [lane] = lanes([stint(1, 900, 1100, { measuring_sec: 100 })], ({ device }) => device, [], WINDOW);
    expect(lane?.spans[0]?.from).toBe(0);
    expect(lane?.measuring).toBeCloseTo(0.05);
  });

  it("holds a stretch that began and ended in one millisecond, and none from outside the window", () => {
    const [lane] = lanes([stint(1, 1500, 1500), stint(2, 900, 1000), stint(3, 2001, null)], ({ worker }) => worker, [], WINDOW);
    expect(lane?.spans.map(({ stint: { round_id } }) => round_id)).toEqual([1]);
  });

  it("is there for a device on which nothing ran, and for no nameless one", () => {
    const found = lanes([stint(1, 1100, 1200, { device: null })], ({ device }) => device, ["d10", "d9"], WINDOW);
    expect(found.map(({ name, busy }) => [name, busy])).toEqual([["d9", 0], ["d10", 0]]);
  });
});

describe("an import, a training or a finish", () => {
  const run: StageRun = { id: 7, job_id: "j", job_name: "mlp", kind: "finish", worker: "w1", started_at: 1500, finished_at: null };

  it("fills its worker's lane, and no device's", () => {
    const [lane] = lanes([stint(1, 1100, 1300), stretch(run)], ({ worker }) => worker, [], WINDOW);
    expect(lane?.busy).toBeCloseTo(0.7);
    expect(lane?.spans.map(({ stint: { stage } }) => stage)).toEqual([undefined, "finish"]);
    expect(lanes([stretch(run)], ({ device }) => device, [], WINDOW)).toEqual([]);
  });

  it("is taken for no round, and counts no trials", () => {
    expect(stretch(run).round_id).toBe(-7);
    expect(errorRate([stretch(run)])).toBeNull();
  });
});

describe("the error rate", () => {
  it("is of candidates, and unknown without any", () => {
    expect(errorRate([stint(1, 0, 1, { failures: 2 }), stint(2, 0, 1)])).toBe(2 / 16);
    expect(errorRate([])).toBeNull();
  });
});

describe("the marks of the axis", () => {
  it("are round by the reader's clock, and not many", () => {
    const found = marks({ since: 1000, now: 4600 }, 1800);
    expect(found.length).toBeLessThanOrEqual(9);
    expect(found.every(({ sec }) => (sec + 1800) % 600 === 0)).toBe(true);
    expect(found.every(({ at }) => at >= 0 && at <= 1)).toBe(true);
  });
});

describe("a job's colour", () => {
  it("stays, and another owner's is none", () => {
    expect(colourOf("908b2b53", 6)).toBe(colourOf("908b2b53", 6));
    expect(colourOf(null, 6)).toBe(0);
    expect(["a", "b", "c"].every((id) => colourOf(id, 6) >= 1 && colourOf(id, 6) <= 6)).toBe(true);
  });
});

describe("a device's machine", () => {
  const caches = [{ bytes: 32768, gbytes_per_sec: 222 }, { bytes: 16777216, gbytes_per_sec: 99.5 }];
  const facts = { cores: 2, lanes: 16, registers: 28, in_flight: 6, core_gflops: 118, gflops: { float32: 236 }, gpu: false, measured: true, disturbed: false };
  const machine = { ...facts, caches, memory_gbytes_per_sec: 41.5, fork_us: 3 };
  const device = (found: Device["machine"]): Device => ({ machine: found }) as Device;

  it("is told by its peak, and in full", () => {
    const measured = device({ machine, reason: "", probed_at: 1, builder: "" });
    expect(peakWords(measured)).toBe("236 GFLOP/s");
    expect(machineWords(measured)).toContain("caches: 32 KB at 222 GB/s, 16 MB at 99.50 GB/s");
  });

  it("says why it is not measured", () => {
    expect(machineWords(device(null))).toBe("not measured yet");
    expect(machineWords(device({ machine: null, reason: "the device was lost", probed_at: 1, builder: "" }))).toBe("not measured: the device was lost");
    expect(peakWords(device(null))).toBe("not measured");
  });
});
