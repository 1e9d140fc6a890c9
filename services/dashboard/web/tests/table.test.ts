import { describe, expect, it } from "vitest";
import { formatOrder, nextOrder, parseOrder, sorted } from "../src/ui/sort";
import { roundDown } from "../src/ui/axes";
import { span, step } from "../src/ui/window";

describe("which rows are drawn", () => {
  it("are few of many, and all the rest is height", () => {
    const view = span(10_000, 40, 200_000, 800);
    expect(view.last - view.first).toBeLessThan(60);
    expect(view.first * 40).toBeLessThanOrEqual(200_000);
    expect(view.last * 40).toBeGreaterThanOrEqual(200_800);
    expect(view.before + (view.last - view.first) * 40 + view.after).toBe(400_000);
  });

  it("are the last ones when a filter leaves less than was scrolled over", () => {
    expect(span(30, 40, 200_000, 800)).toEqual({ first: 2, last: 30, before: 80, after: 0 });
    expect(span(0, 40, 100, 800)).toEqual({ first: 0, last: 0, before: 0, after: 0 });
  });
});

describe("a table that is scrolled a little", () => {
  it("draws what it drew, and still all that is in view", () => {
    expect(step(40, 165)).toBe(step(40, 319));
    for (const top of [0, 159, 160, 4_017]) {
      const view = span(10_000, 40, step(40, top), 800);
      expect(view.first * 40).toBeLessThanOrEqual(top);
      expect(view.last * 40).toBeGreaterThanOrEqual(top + 800);
    }
  });
});

describe("the order", () => {
  const rows = [{ n: 2 }, { n: null }, { n: 10 }];

  it("puts what has no value last, in either direction", () => {
    expect(sorted(rows, (row) => row.n, false).map((row) => row.n)).toEqual([2, 10, null]);
    expect(sorted(rows, (row) => row.n, true).map((row) => row.n)).toEqual([10, 2, null]);
  });

  it("sorts texts with numbers in them as people do", () => {
    expect(sorted(["conv10", "conv9"], (text) => text, false)).toEqual(["conv9", "conv10"]);
  });

  it("turns round at a second press, and is what the address says", () => {
    const first = nextOrder(parseOrder(undefined, "-created"), "trials", true);
    expect(formatOrder(first)).toBe("-trials");
    expect(formatOrder(nextOrder(first, "trials", true))).toBe("trials");
    expect(parseOrder("name", "-created")).toEqual({ key: "name", down: false });
  });
});

describe("the ends of a logarithmic axis", () => {
  it("are round and hold everything", () => {
    expect([498, 500, 523, 1.7, 0.03].map(roundDown)).toEqual([200, 500, 500, 1, 0.02]);
    expect([-498, -500, -523, -96_000].map(roundDown)).toEqual([-500, -500, -1000, -100_000]);
  });
});
