import { describe, expect, it } from "vitest";
import { address } from "../src/api/client";
import { formatLabels, formatSelection, merged, selection } from "../src/jobs/choose";
import { filterQuery, isFiltered, NO_FILTER } from "../src/jobs/filters";
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

  it("is filtered by the server", () => {
    const query = filterQuery({ q: "mlp", state: "active", label: "team=vision, nightly", since: "2026-11-20", sel: "a" });
    expect(query).toMatchObject({ name: "mlp", archived: null, label: ["team=vision", "nightly"], created_after: 1795132800, created_before: null });
    expect(query["state"]).toEqual(["queued", "importing", "tuning", "finishing", "paused"]);
    expect(filterQuery({ state: "archived" })).toMatchObject({ archived: true, state: null });
    expect(filterQuery({ state: "done" })).toMatchObject({ archived: null, state: "done" });
    expect(address("jobs", query, "http://here/")).toBe(
      "http://here/api/v1/jobs?state=queued&state=importing&state=tuning&state=finishing&state=paused&name=mlp&label=team%3Dvision&label=nightly&created_after=1795132800",
    );
  });

  it("is filtered by what its address names, not by its order or selection", () => {
    expect(isFiltered({ sort: "name", sel: "a" })).toBe(false);
    expect(isFiltered({ owner: "ada" })).toBe(true);
    expect(isFiltered(NO_FILTER)).toBe(false);
  });

  it("shows labels as they are typed", () => {
    expect(formatLabels(job({ labels: { team: "vision", nightly: "" } }))).toBe("team=vision, nightly");
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
