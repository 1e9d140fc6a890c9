import { describe, expect, it } from "vitest";
import { chosen, formatSelection, merged, selection } from "../src/jobs/choose";
import { bestUs, canPause, canResume, secondsLeft, speedUp, spentOf, versusOnnxruntime } from "../src/jobs/standing";
import { job } from "./samples";

const REPORT = { latency_us: { untuned: { median: 100 }, tuned: { median: 20 }, onnxruntime: { median: 30 } } };

describe("how a job stands", () => {
  it("takes what was measured whole before what was added up", () => {
    const progress = { ...job().progress, estimated_us: 18 };
    expect(bestUs(job({ progress }))).toBe(18);
    expect(bestUs(job({ progress, report: REPORT }))).toBe(20);
    expect(speedUp(job({ report: REPORT }))).toBe(5);
    expect(versusOnnxruntime(job({ report: REPORT }))).toBe(1.5);
  });

  it("claims no speed-up before both sides were measured", () => {
    expect(speedUp(job())).toBeNull();
    expect(speedUp(job({ report: { latency_us: { tuned: { median: 20 }, untuned: null } } }))).toBeNull();
    expect(speedUp(job({ report: { latency_us: {} } }))).toBeNull();
  });

  it("tells the time left by its pace, or by the clock where that is sooner", () => {
    const progress = { ...job().progress, trials: 25 };
    expect(secondsLeft(job({ progress }), 1050)).toBe(150);
    expect(secondsLeft(job({ progress, minutes: 1 }), 1050)).toBe(10);
    expect(secondsLeft(job({ minutes: 1 }), 1050)).toBe(10);
    expect(secondsLeft(job(), 1050)).toBeNull();
    expect(secondsLeft(job({ progress, state: "paused" }), 1050)).toBeNull();
  });

  it("tells the budget in trials where there is one", () => {
    const progress = { ...job().progress, trials: 16 };
    expect([job({ progress }), job({ progress, trials: null }), job({ trials: 0 })].map(spentOf)).toEqual(["16 of 100", "16", "0"]);
  });

  it("offers only what its state allows", () => {
    expect([canPause(job()), canResume(job())]).toEqual([true, false]);
    expect(canPause(job({ state: "finishing" }))).toBe(true);
    expect([canPause(job({ state: "done" })), canResume(job({ state: "done" }))]).toEqual([false, true]);
    expect([canPause(job({ state: "failed" })), canResume(job({ state: "failed" }))]).toEqual([false, false]);
  });
});

describe("the list", () => {
  const jobs = [job({ id: "a", name: "bert" }), job({ id: "b", name: "mlp", state: "done" }), job({ id: "c", name: "MLP big" })];

  it("is filtered by state and by every word", () => {
    expect(chosen(jobs, "", "").map(({ id }) => id)).toEqual(["a", "b", "c"]);
    expect(chosen(jobs, "active", "").map(({ id }) => id)).toEqual(["a", "c"]);
    expect(chosen(jobs, "done", "").map(({ id }) => id)).toEqual(["b"]);
    expect(chosen(jobs, "", "mlp big").map(({ id }) => id)).toEqual(["c"]);
  });

  it("keeps a selection in the address", () => {
    expect(selection(formatSelection(new Set(["a", "b"])))).toEqual(new Set(["a", "b"]));
    expect(selection(undefined).size).toBe(0);
  });

  it("shows a job once, as the newest page has it", () => {
    const old = [job({ id: "b", state: "tuning" }), job({ id: "z" })];
    expect(merged(jobs, old).map(({ id, state }) => `${id} ${state}`)).toEqual(["a tuning", "b done", "c tuning", "z tuning"]);
  });
});
