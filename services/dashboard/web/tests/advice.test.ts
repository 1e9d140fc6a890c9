import { describe, expect, it } from "vitest";
import type { Job } from "../src/api/types";
import { adviceOf, commandIn, obstacle, peakShare, remarks } from "../src/job/advice";
import { commandsFor, reaching, serverAddress } from "../src/job/commands";
import { level, mark } from "../src/jobs/standing";
import { job, type Part } from "./samples";

const WAITS = { waiting_because: "no device serves this target", hint: "mallorn device   (then it goes on by itself)" };
const timed = (tuned: number, onnxruntime: number): Part<Job["report"]> => ({ latency_us: { tuned: { median: tuned }, onnxruntime: { median: onnxruntime } } });

describe("the advice on a job", () => {
  it("is what happened, what helps and the command in it", () => {
    expect(adviceOf(job(WAITS))).toEqual({
      what: "no device serves this target",
      help: "mallorn device   (then it goes on by itself)",
      command: "mallorn device",
    });
    expect(commandIn("waits: start one with `mallorn device`")).toBe("mallorn device");
    expect(commandIn("--input-shape x:1,3")).toBe("");
    expect(adviceOf(job({ state: "failed", ended_because: "the disk is full", hint: "df -h" }))).toEqual({ what: "the disk is full", help: "df -h", command: "df -h" });
    expect(adviceOf(job({ id: "abc", hint: "mallorn resume JOB" })).command).toBe("mallorn resume abc");
  });
});

describe("a job that is held up", () => {
  it("is one that waits, or was paused by an error", () => {
    expect(obstacle(job(WAITS), 0)?.command).toBe("mallorn device");
    expect(obstacle(job({ state: "paused", waiting_because: "eight builds failed alike" }), 0)?.what).toBe("eight builds failed alike");
  });

  it("is none that moves, ended, or was paused by its owner", () => {
    expect(obstacle(job(), 0)).toBeNull();
    expect(obstacle(job({ state: "paused", waiting_because: "paused by its owner", cause: "owner" }), 0)).toBeNull();
    const step = { name: "tasks are checked", done: 3, total: 28, disturbance: null };
    expect(obstacle(job({ state: "finishing", progress: { ...job().progress, step } }), 0)).toBeNull();
    expect(obstacle(job({ state: "done", ended_because: "the budget of 8 trials is spent" }), 0)).toBeNull();
  });

  it("is one that no worker takes", () => {
    expect(obstacle(job({ state: "queued", created_at: 0 }), 10)).toBeNull();
    expect(obstacle(job({ state: "queued", created_at: 0 }), 100)?.command).toBe("mallorn workers");
  });
});

describe("commands", () => {
  it("name this server where it is not the usual one", () => {
    expect(reaching("mallorn watch j1", "http://127.0.0.1:8000")).toBe("mallorn watch j1");
    expect(reaching("mallorn watch j1", "https://lab/mallorn")).toBe("mallorn watch j1 --url https://lab/mallorn");
    for (const command of ["df -h", "mallorn device", "mallorn profile m.onnx"]) expect(reaching(command, "https://lab")).toBe(command);
    expect(serverAddress("https://lab/mallorn/#/jobs")).toBe("https://lab/mallorn");
  });

  it("are those that work in the job's state", () => {
    const words = (changes: Parameters<typeof job>[0]): string => commandsFor(job(changes), "http://127.0.0.1:8000").join("\n");
    expect(words({})).toContain("mallorn watch j1");
    expect(words({ state: "done", exported: true })).not.toContain("watch");
    expect(words({ state: "done", exported: true })).toContain("mallorn compile MODEL.onnx --schedules tuned");
    expect(words({ state: "paused" })).toContain("mallorn resume j1");
    const answered = words({ state: "done", options: { mode: "zero-shot" } });
    expect(answered).toContain("mallorn tune MODEL.onnx --auto");
    expect(answered).not.toContain("resume");
  });
});

describe("the remarks on a job", () => {
  it("are its warnings, what was not done, and a host that was not quiet", () => {
    const report = { skipped_steps: [{ step: "timing", reason: "no time", hint: "mallorn resume j1" }], conditions: { steady: false, note: "The host was busy." } };
    const warnings = [{ source: "mine:Searcher", message: "KeyError: 'x'", hint: "", count: 3 }];
    expect(remarks(job({ report, warnings })).map(({ what }) => what)).toEqual(["mine:Searcher: KeyError: 'x' (3 times)", "Not done: timing, no time", "The host was busy."]);
  });

  it("do not tell again of what the verdict above them does", () => {
    const report = { conditions: { steady: false, note: "The host was busy." } };
    const verdict = { level: "fair" as const, summary: "as fast; these figures are not certain: The host was busy", next: "", beside: null };
    expect(remarks(job({ state: "done", report, verdict }))).toEqual([]);
  });

  it("are none where an older server says nothing of all this", () => {
    expect(remarks(job())).toEqual([]);
    expect(remarks(job({ report: { skipped_steps: [] } }))).toEqual([]);
    const report = { limits: { peak_share: 0.4 } };
    expect([peakShare(job()), peakShare(job({ report }))]).toEqual([null, 0.4]);
    const outlook = { now_us: 2, limit_us: 1, end_us: 2, gain: 0, trials: 0 };
    expect(peakShare(job({ report, outlook })), "the verdict tells its tasks' share").toBeNull();
  });
});

describe("how well a job did", () => {
  it("is the server's verdict, or what its figures say", () => {
    expect(level(job({ verdict: { level: "fair", summary: "", next_command: "", comparison: null }, report: timed(4, 1) }))).toBe("fair");
    expect([level(job({ report: timed(4, 1) })), level(job({ report: timed(1, 4) })), level(job())]).toEqual(["poor", "good", "none"]);
  });

  it("marks a slow result otherwise than a success", () => {
    expect([mark(job({ state: "done", report: timed(4, 1) })), mark(job({ state: "done", report: timed(1, 4) })), mark(job())]).toEqual(["done-poor", "done", "tuning"]);
  });
});
