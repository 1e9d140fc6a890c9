import { afterEach, describe, expect, it, vi } from "vitest";
import * as client from "../src/api/client";
import { type Compared, differences, fastest, labels, loadAll, overlay, sideBySide } from "../src/compare/overlay";
import { job, task } from "./samples";

const point = (trials: number, totalUs: number) => ({ trials, sec: trials * 10, totalUs });

function compared(id: string, tasks: ReturnType<typeof task>[]): Compared {
  return { job: job({ id }), tasks, points: [], reachedUs: new Map(tasks.map((known) => [known.index, known.latency_us])) };
}

describe("curves over one another", () => {
  it("hold from point to point, and are empty outside their own ends", () => {
    const { x, y } = overlay([[point(8, 50), point(24, 40)], [point(16, 60), point(32, 30)]], ({ trials }) => trials);
    expect(x).toEqual([8, 16, 24, 32]);
    expect(y).toEqual([[50, 50, 40, null], [null, 60, 60, 30]]);
  });

  it("go by seconds where that is asked for, and bear a job without a curve", () => {
    const { x, y } = overlay([[point(1, 5)], []], ({ sec }) => sec);
    expect(x).toEqual([10]);
    expect(y).toEqual([[5], [null]]);
  });
});

describe("tasks side by side", () => {
  const rows = sideBySide([
    compared("a", [task(0, { workload: "w", latency_us: 9 }), task(1, { workload: "v", latency_us: 8, weight: 5 })]),
    compared("b", [task(5, { workload: "w", latency_us: 7 })]),
  ]);

  it("meet by workload, those with most time first", () => {
    expect(rows.map((row) => [row.workload, ...row.cells.map((cell) => cell?.task.index)])).toEqual([["v", 1, undefined], ["w", 0, 5]]);
  });

  it("name the fastest only where two have a time", () => {
    expect(rows.map(fastest)).toEqual([null, 1]);
  });

  it("name nobody the fastest of equals", () => {
    const [row] = sideBySide([compared("a", [task(0)]), compared("b", [task(0)])]);
    expect(row && fastest(row)).toBeNull();
  });
});

describe("what tells jobs apart", () => {
  it("is every option in which they differ", () => {
    const jobs = [job({ options: { search: "ga", policy: "dynatune", only: [] } }), job({ options: { search: "sa", policy: "dynatune", only: [] } })];
    expect(differences(jobs)).toEqual(["search"]);
  });

  it("is the id where the name is the same", () => {
    expect(labels([job({ id: "aaaaaaaa" }), job({ id: "bbbbbbbb" }), job({ name: "other" })])).toEqual(["mlp.onnx aaaaaa", "mlp.onnx bbbbbb", "other"]);
  });
});

describe("loading jobs to compare", () => {
  afterEach(() => vi.restoreAllMocks());
  const signal = new AbortController().signal;

  it("keeps what has ended and says why another cannot be had", async () => {
    const found = { job: job({ id: "a", state: "done" }), tasks: [], points: [], reachedUs: new Map(), leaves: [] };
    const get = vi.spyOn(client, "get").mockRejectedValue(new client.ApiError(404, "there is no job b", ""));
    const entries = await loadAll(["a", "b"], signal, [{ id: "a", found }]);
    expect(entries[0]?.found).toBe(found);
    expect(entries[1]?.error?.message).toBe("there is no job b");
    expect(get).toHaveBeenCalledTimes(1);
  });

  it("keeps what was known of a job that cannot be asked for now", async () => {
    const found = { job: job({ id: "a" }), tasks: [], points: [], reachedUs: new Map(), leaves: [] };
    vi.spyOn(client, "get").mockRejectedValue(new client.ApiError(0, "The coordinator does not answer.", ""));
    const [entry] = await loadAll(["a"], signal, [{ id: "a", found }]);
    expect(entry?.found).toBe(found);
    expect(entry?.error?.status).toBe(0);
  });
});
