import { describe, expect, it } from "vitest";
import { accuracy, accuracyWords, lines } from "../src/costmodels/lines";
import { byHealth, isAway } from "../src/fleet/health";
import { versus } from "../src/format";
import { apart } from "../src/jobs/choose";
import { modelBytes } from "../src/jobs/example";
import { snippets } from "../src/job/commands";
import { job } from "./samples";

describe("jobs of one name", () => {
  it("are told apart by seed and the options that differ", () => {
    const jobs = [job({ id: "a", seed: 1, options: { search: "ga", policy: "dynatune" } }), job({ id: "b", seed: 2, options: { search: "random", policy: "dynatune" } }), job({ id: "c", name: "other" })];
    expect([...apart(jobs)]).toEqual([["a", "seed 1 · search ga"], ["b", "seed 2 · search random"], ["c", ""]]);
  });
});

describe("the example model", () => {
  it("is the same every time, and small", () => {
    const [one, other] = [modelBytes(), modelBytes()];
    expect(one.every((byte, at) => byte === other[at])).toBe(true);
    expect(one.length).toBeLessThan(2e6);
  });
});

describe("the snippets", () => {
  it("name this server, and a key only where one is used", () => {
    const texts = snippets("https://lab/mallorn").map(({ text }) => text);
    expect(texts.every((text) => text.includes("https://lab/mallorn"))).toBe(true);
    expect(texts.join()).not.toContain("MALLORN_API_KEY");
    expect(snippets("https://lab", true).at(-1)?.text).toContain("MALLORN_API_KEY");
  });
});

describe("the fleet", () => {
  it("shows those at work first and the stopped last, whom nobody counts on", () => {
    const rows = (["stopped", "silent", "idle", "busy"] as const).map((state) => ({ state }));
    expect(byHealth(rows).map(({ state }) => state)).toEqual(["busy", "idle", "silent", "stopped"]);
    expect(rows.filter(isAway).map(({ state }) => state)).toEqual(["stopped", "silent"]);
  });
});

describe("the accuracy of a cost model", () => {
  it("is of the version in use, in words where it is no help", () => {
    const model = { family: "f", target: "t", name: "n", rows: 1, metrics: { pairwise: 0.41 }, version: 1, active: true } as unknown as Parameters<typeof lines>[0][number];
    expect(accuracy(lines([model])[0]!)).toBe(0.41);
    expect([0.41, 0.55, 0.8, null].map(accuracyWords)).toEqual(["worse than guessing", "little better than guessing", "", "not judged"]);
  });
});

describe("one engine beside another", () => {
  it("is so many times faster or slower", () => {
    expect([versus(1.4), versus(0.25), versus(null)]).toEqual(["1.40× faster", "4.00× slower", "–"]);
  });
});
