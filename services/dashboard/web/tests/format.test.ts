import { describe, expect, it } from "vitest";
import { age, apart, bytes, duration, flops, latency, percent, plural, target, times, tiny, versus } from "../src/format";
import { formatRoute, parseRoute } from "../src/route";

describe("numbers with their units", () => {
  it("fit the unit to the size", () => {
    expect([latency(3.2041), latency(106.42), latency(18_460.7), latency(2_500_000), latency(null)]).toEqual([
      "3.204 µs",
      "106.4 µs",
      "18.46 ms",
      "2.500 s",
      "–",
    ]);
    expect([flops(0), flops(231_500_000), flops(1e12)]).toEqual(["0 FLOP", "231.5 MFLOP", "1 TFLOP"]);
    expect([bytes(12), bytes(46_750_000)]).toEqual(["12 B", "46.75 MB"]);
    expect([percent(0.126), percent(0.0126), percent(null)]).toEqual(["13 %", "1.3 %", "–"]);
    expect([times(0.000259), times(1.145), times(51.09), times(943.2)]).toEqual(["0.00026×", "1.15×", "51.1×", "943×"]);
    expect([versus(2), versus(0.5), versus(null)]).toEqual(["2.00× faster", "2.00× slower", "–"]);
    expect([latency(0.0000121), latency(0)]).toEqual(["<0.001 µs", "0 µs"]);
    expect([plural(1, "job"), plural(1200, "job")]).toEqual(["1 job", "1,200 jobs"]);
  });

  it("tell times in two steps at most", () => {
    expect([0, 59.4, 60, 200, 3600, 7500, 90_000].map(duration)).toEqual([
      "0 s",
      "59 s",
      "1 min",
      "3 min 20 s",
      "1 h",
      "2 h 5 min",
      "1 d 1 h",
    ]);
  });

  it("have as many digits along an axis as tell its marks apart", () => {
    expect(apart([145.3, 145.35, 145.4])).toEqual(["145.3 µs", "145.35 µs", "145.4 µs"]);
    expect(apart([1000, 2000])).toEqual(["1 ms", "2 ms"]);
  });

  it("are short where they are tiny, and nought where there is none", () => {
    expect([tiny(8.12e-7), tiny(0)]).toEqual(["8.1e-7", "0"]);
  });

  it("tell a target in few words, and any other text as it is", () => {
    expect(target('{"kind":"llvm","mcpu":"znver5","num-cores":2}')).toBe("llvm · znver5 · 2 cores");
    expect(target('{"kind":"cuda","arch":"sm_90"}')).toBe("cuda · sm_90");
    expect(target("nvidia/nvidia-h100")).toBe("nvidia/nvidia-h100");
    expect(target("[]")).toBe("[]");
  });
});

describe("the address", () => {
  it("keeps place and choices", () => {
    const route = { path: ["jobs", "a/b", "tasks", "3"], choices: { sort: "-share", q: "conv 2d&x" } };
    expect(parseRoute(formatRoute(route.path, route.choices))).toEqual(route);
  });

  it("leaves empty choices out", () => {
    expect(formatRoute(["jobs"], { state: "", q: "" })).toBe("#/jobs");
    expect(parseRoute("")).toEqual({ path: [], choices: {} });
    expect(parseRoute("#/jobs/%E0%A4%A").path).toEqual(["jobs", "%E0%A4%A"]);
  });
});

describe("how long ago something was", () => {
  it("is told roughly", () => {
    expect([8, 200, 7500, 360_000].map(age)).toEqual(["8 s", "3 min", "2 h", "4 d"]);
  });
});
