import { describe, expect, it } from "vitest";
import { points } from "../src/job/Points";
import { job } from "./samples";

const timed = (median: number) => ({ median, low: median, high: median });

describe("a job for a range of shapes", () => {
  it("tells each size, how often it can be called, and how it stands beside onnxruntime", () => {
    const known = job({ report: { points: [{ sizes: { sequence: 1, past: 64 }, latency_us: { tuned: timed(5000), onnxruntime: timed(8000) } }] } });
    expect(points(known)).toEqual([{ at: "sequence=1 past=64", tuned: "5 ms", aSecond: "200", onnxruntime: "8 ms", beside: "1.60× faster" }]);
  });

  it("tells what was not timed as such", () => {
    const known = job({ report: { points: [{ sizes: { batch: 4 }, latency_us: { tuned: null } }] } });
    expect(points(known)).toEqual([{ at: "batch=4", tuned: "–", aSecond: "", onnxruntime: "–", beside: "" }]);
  });

  it("is no job of one size", () => {
    expect(points(job())).toEqual([]);
  });
});
