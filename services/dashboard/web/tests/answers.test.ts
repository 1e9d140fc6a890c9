import { describe, expect, it } from "vitest";
import { answerOf, inFull, inShort, noSchedule, rests, type Answer } from "../src/job/answers";
import { canResume } from "../src/jobs/standing";
import { job, task } from "./samples";

const answer = (changes: Partial<Answer> = {}): Answer => ({ source: "near", basis: "carried from other sizes", confidence: "likely", expected_us: null, is_verified: false, ...changes });
const answered = (...all: Answer[]) => job({ state: "done", options: { mode: "one-shot" }, report: { unmeasured_schedules: Object.fromEntries(all.map((each, at) => [`task${at}`, each])) } });

describe("a job that answers from what is known", () => {
  it("tells of each task what it rests on and how sure that is", () => {
    const known = answered(answer({ source: "same", confidence: "measured", expected_us: 120, is_verified: true }), answer());
    const [first, second] = [task(0), task(1)].map((each) => answerOf(known, each));
    expect(first && [inShort(first), inFull(first)]).toEqual(["same, measured", "carried from other sizes; 120 µs when it was measured; built and checked"]);
    expect(second && inFull(second)).toBe("carried from other sizes; nobody has built or checked it");
    expect(answerOf(known, task(2))).toBeNull();
  });

  it("counts the tasks by their sources, in the order in which these are asked", () => {
    const [figure] = rests(answered(answer(), answer({ source: "same" }), answer()));
    expect(figure?.value).toBe("3 tasks");
    expect(figure?.note).toBe("1 on measurements of the same workload; 2 on schedules of the same loops in other sizes; built and checked: no");
  });

  it("claims no check beyond what was checked", () => {
    const note = (...all: boolean[]) => rests(answered(...all.map((is_verified) => answer({ is_verified }))))[0]?.note ?? "";
    expect(note(true, true)).toContain("built and checked: yes");
    expect(note(true, false)).toContain("built and checked: 1 of them");
  });

  it("takes no more trials, and says why a task has no verified schedule", () => {
    expect(canResume(answered(answer()))).toBe(false);
    expect(noSchedule(answered(answer()))).toContain("This job is one-shot");
  });
});

describe("a job that searches", () => {
  it("has no such thing, on older servers too", () => {
    expect(rests(job())).toEqual([]);
    expect(answerOf(job({ report: {} }), task(0))).toBeNull();
    expect(canResume(job({ state: "done" }))).toBe(true);
    expect(noSchedule(job({ state: "done" }))).toContain("measured again");
  });
});
