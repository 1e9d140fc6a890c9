import { describe, expect, it } from "vitest";
import { earned } from "../src/job/figures";
import { job } from "./samples";

const search_methods = { default: 1, mutation: 4 };
const report = (latency_us: object, more = {}) => ({ report: { search_methods, model_contests: { latency_us, ...more } } });

describe("what trials won", () => {
  it("is told beside the whole model with first guesses, and by what means", () => {
    const note = "over a job without trials, 2 ms; tasks by mutation 4, default 1";
    expect(earned(job(report({ before: 1818, guesses: 2000 })))).toEqual([{ name: "Won by trials", value: "9.1 %", note }]);
    const [taken] = earned(job(report({ before: 1900, after: 1700, guesses: 2000 }, { uses_replacements: true })));
    expect(taken?.value).toBe("15 %");
  });

  it("is nothing where first guesses are as fast, or are handed out", () => {
    const [even] = earned(job(report({ before: 1999, guesses: 2000 })));
    const [lost] = earned(job(report({ before: 2100, guesses: 2000 }, { uses_guesses: true })));
    expect([even?.value, lost?.value]).toEqual(["nothing", "nothing"]);
  });

  it("is not told where first guesses were not timed", () => {
    expect(earned(job(report({ before: 1999, after: 1900 })))).toEqual([]);
    expect(earned(job())).toEqual([]);
  });
});
