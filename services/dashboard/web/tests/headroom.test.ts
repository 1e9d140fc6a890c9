import { describe, expect, it } from "vitest";
import { headroom } from "../src/job/figures";
import { expectedTrials, isAuto, secondsLeft } from "../src/jobs/standing";
import { job } from "./samples";

const outlook = { current_us: 2000, limit_us: 1500, expected_us: 1800, gain: 0.031, trials: 48 };
const auto = { trials: null, minutes: null, progress: { trials: 16 } };

describe("headroom", () => {
  it("is told once the planner knows it", () => {
    expect(headroom(job())).toEqual([]);
    expect(headroom(job({ outlook }))).toEqual([
      { name: "The machine's limit", value: "1.500 ms", note: "its tasks reach 75 % of it" },
      { name: "Expected at the end", value: "1.800 ms", note: "after some 48 trials more; the next 100 win 3.1 %" },
    ]);
  });

  it("leaves out a limit that nobody measured", () => {
    const figures = headroom(job({ outlook: { ...outlook, limit_us: null } }));
    expect(figures.map(({ name }) => name)).toEqual(["Expected at the end"]);
  });

  it("tells what was left when the job has ended", () => {
    const left = { name: "Left to win", value: "3.1 %", note: "in the next 100 trials" };
    expect(headroom(job({ state: "done", outlook }))).toContainEqual(left);
  });
});

describe("a job that ends by itself", () => {
  it("is one without trials and minutes", () => {
    expect([job(auto), job({ minutes: 5, trials: null }), job()].map(isAuto)).toEqual([true, false, false]);
  });

  it("takes as long as its planner thinks, and nobody knows before", () => {
    expect(expectedTrials(job(auto))).toBeNull();
    expect(secondsLeft(job(auto), 1032)).toBeNull();
    expect(expectedTrials(job({ ...auto, outlook }))).toBe(64);
    expect(secondsLeft(job({ ...auto, outlook }), 1032)).toBe(96);
    expect(expectedTrials(job({ minutes: 5, trials: null, outlook }))).toBeNull();
  });
});
