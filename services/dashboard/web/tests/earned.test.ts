import { describe, expect, it } from "vitest";
import { earned } from "../src/job/earned";
import { job } from "./samples";

const report = (found_us: number, saved_us = {}, trials = 64) => ({ report: { trials, earned: { guessed_us: 2000, found_us, saved_us } } });

describe("what trials won", () => {
  it("is told beside the first guesses, and by what means", () => {
    const saved = { roller: 20, mutation: 160, random: 2 };
    const note = "over the first guesses, 2.000 ms over the tasks; mutation 8.0 %, roller 1.0 %";
    expect(earned(job(report(1818, saved)))).toEqual([{ name: "Won by trials", value: "9.1 %", note }]);
  });

  it("is nothing where first guesses are as fast", () => {
    expect(earned(job(report(1999)))).toEqual([{ name: "Won by trials", value: "nothing", note: "beyond the first guesses, 2.000 ms over the tasks" }]);
  });

  it("is not told of a job without trials or of an earlier version's report", () => {
    expect(earned(job(report(1818, {}, 0)))).toEqual([]);
    expect(earned(job())).toEqual([]);
  });
});
