import { describe, expect, it } from "vitest";
import { stepsOf } from "../src/job/StepSeconds";
import { job } from "./samples";

const step = (wall: number, processor: number | null = null) => ({ wall, processor });
const names = (seconds: { [name: string]: ReturnType<typeof step> }): string[] => stepsOf(job({ report: { seconds } })).map(({ name }) => name);

describe("where the time of a job went", () => {
  it("is told in the order of time, the rest last, however the report came", () => {
    expect(names({ rest: step(1), time: step(1), build: step(1), export: step(1), import: step(1) })).toEqual(["import", "build", "export", "time", "rest"]);
  });

  it("is not told where a report does not, and a step that took nothing is left out", () => {
    expect(stepsOf(job())).toEqual([]);
    expect(stepsOf(job({ report: {} }))).toEqual([]);
    expect(names({ import: step(0), build: step(1) })).toEqual(["build"]);
  });

  it("is told exactly, in words", () => {
    const [imported, compared] = stepsOf(job({ report: { seconds: { import: step(0.08), compare: step(63.13, 13.98) } } }));
    expect(imported?.words).toBe("import: 80 ms (0.1 %); reads the model and splits it into tasks");
    expect(compared?.words).toBe("compare: 63.13 s (100 %), 13.98 s of processor time; times the whole model beside other engines");
  });

  it("has a colour for each of the six largest steps, none for slivers and the rest", () => {
    const seconds = { import: step(9), probe: step(0.01), propose: step(1), build: step(8), check: step(7), export: step(2), time: step(6), compare: step(5), rest: step(30) };
    const colours = stepsOf(job({ report: { seconds } })).map(({ name, colour }) => [name, colour]);
    expect(Object.fromEntries(colours)).toEqual({ import: 1, probe: 0, propose: 0, build: 2, check: 3, export: 4, time: 5, compare: 6, rest: 0 });
  });

  it("has no more colours than there are, though parts be alike", () => {
    const seconds = Object.fromEntries(["import", "probe", "propose", "build", "check", "export", "time", "compare"].map((name) => [name, step(1)]));
    expect(Math.max(...stepsOf(job({ report: { seconds } })).map(({ colour }) => colour))).toBe(6);
  });

  it("lies along the bar by its share", () => {
    expect(stepsOf(job({ report: { seconds: { import: step(1), build: step(3) } } })).map(({ middle }) => middle)).toEqual([0.125, 0.625]);
  });
});
