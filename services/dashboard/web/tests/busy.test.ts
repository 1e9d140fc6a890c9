import { describe, expect, it } from "vitest";
import { busy } from "../src/job/figures";
import { job } from "./samples";

const report = (loaded_us: number | null, min_programs: number | null) => ({
  report: { contention: { tasks: [], loads: [{ programs: 2, alone_us: 8000, loaded_us }], min_programs, seconds: 1 } },
});

describe("a model beside other programs", () => {
  it("is told with the version that wins there", () => {
    const note = "with the schedules for busy machines, 8 ms without it";
    expect(busy(job(report(6000, 1)))).toEqual([{ name: "Beside 2 programs", value: "6 ms", note }]);
  });

  it("is told with the version that is best alone where no other wins", () => {
    const note = "the schedules that are best alone are best there";
    expect(busy(job(report(7900, null)))).toEqual([{ name: "Beside 2 programs", value: "8 ms", note }]);
    expect(busy(job(report(null, null)))).toEqual([{ name: "Beside 2 programs", value: "8 ms", note }]);
  });

  it("is not told where nobody asked", () => {
    expect(busy(job())).toEqual([]);
  });
});
