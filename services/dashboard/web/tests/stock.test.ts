import { describe, expect, it } from "vitest";
import { hasStock, stockOf } from "../src/job/figures";
import { task } from "./samples";

describe("what stock's tuner found", () => {
  it("stands beside ours, with whose host it was", () => {
    expect(stockOf(task(0, { stock_us: 12, latency_us: 10 }))).toEqual({
      name: "Stock's tuner",
      value: "12 µs",
      note: "as its logs tell, on a host that they do not name; 1.20× faster here",
    });
    expect(stockOf(task(0, { stock_us: 5, latency_us: 10 }))?.note).toContain("2.00× slower here");
  });

  it("is told before anything was measured here", () => {
    expect(stockOf(task(0, { stock_us: 12, latency_us: null }))?.note).toBe("as its logs tell, on a host that they do not name");
  });

  it("is left out where no log tells of it", () => {
    expect(stockOf(task(0))).toBeNull();
    expect(hasStock([task(0), task(1)])).toBe(false);
    expect(hasStock([task(0), task(1, { stock_us: 12 })])).toBe(true);
  });
});
