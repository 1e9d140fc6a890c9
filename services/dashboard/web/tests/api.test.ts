import { describe, expect, it, vi } from "vitest";
import { address } from "../src/api/client";
import { EventParser, gathered, retryAfterMs } from "../src/api/live";
import { pause } from "../src/api/resource";
import { settled } from "../src/job/history";
import { round } from "./samples";

describe("where the API is", () => {
  it("is beside the page, whatever stands in front of it", () => {
    expect(address("jobs", {}, "https://host/tools/mallorn/#/jobs?q=1")).toBe("https://host/tools/mallorn/api/v1/jobs");
    expect(address("jobs", { limit: 5, cursor: null, q: "a b" }, "http://h/")).toBe("http://h/api/v1/jobs?limit=5&q=a+b");
  });
});

describe("an id out of a link", () => {
  it("leads to no other route", () => {
    for (const id of ["..", "../keys", "%2e%2e/keys", "a?limit=1", "a#b", "//evil.example/x", "https://evil.example"]) {
      expect(() => address(`jobs/${id}/tasks`, {}, "http://h/"), id).toThrow("The named resource does not exist here.");
    }
    expect(address("jobs/0a1b-2/tasks", {}, "http://h/")).toBe("http://h/api/v1/jobs/0a1b-2/tasks");
  });
});

describe("server-sent events", () => {
  const text = 'id: 1\nevent: measured\ndata: {"trials": 4}\n\n: still here\n\nid: 2\nevent: done\ndata: {}\n\n';

  it("come whole however the stream is cut", () => {
    for (let cut = 0; cut <= text.length; cut += 1) {
      const parser = new EventParser();
      const events = [...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))];
      expect(events).toEqual([1, 2]);
    }
  });

  it("are not made of a torn end", () => {
    expect(new EventParser().push("id: 3\ndata: {}")).toEqual([]);
  });
});

describe("refreshing", () => {
  it("gathers many events into one", () => {
    vi.useFakeTimers();
    const action = vi.fn();
    const gather = gathered(action, 1000);
    gather.soon();
    gather.soon();
    vi.advanceTimersByTime(999);
    expect(action).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(action).toHaveBeenCalledTimes(1);
    gather.soon();
    gather.cancel();
    vi.advanceTimersByTime(5000);
    expect(action).toHaveBeenCalledTimes(1);
    vi.useRealTimers();
  });

  it("waits longer after every failure, up to a limit", () => {
    expect([0, 1, 2, 9].map(retryAfterMs)).toEqual([4000, 8000, 10_000, 10_000]);
  });

  it("goes on after a failure, also where only events would ask", () => {
    expect(pause(null, false, false)).toBeNull();
    expect(pause(null, true, false)).toBe(5000);
    expect(pause(3, false, false)).toBe(3000);
    expect(pause(3, true, true)).toBe(250);
  });
});

describe("a long log of rounds", () => {
  const leaf = (next: string | null, state: "done" | "leased") => ({
    cursor: null,
    page: { items: [round(0, { state })], next_cursor: next },
  });

  it("asks again from the first page that can still change", () => {
    const leaves = [leaf("a", "done"), leaf("b", "leased"), leaf("c", "done"), leaf(null, "done")];
    expect(settled(leaves)).toHaveLength(1);
    expect(settled([leaf("a", "done"), leaf(null, "done")])).toHaveLength(1);
    expect(settled([])).toEqual([]);
  });
});
