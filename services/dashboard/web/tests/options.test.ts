import { describe, expect, it } from "vitest";
import type { JobOption } from "../src/api/types";
import { askable, chosenOptions, givenBy, PATTERNS, standing, title } from "../src/jobs/options";

function option(name: string, kind: JobOption["kind"], standard: unknown, changes: Partial<JobOption> = {}): JobOption {
  return { name, kind, default: standard, description: "", choices: [], optional: standard === null, minimum: null, maximum: null, exclusive_minimum: null, ...changes };
}

const OPTIONS = [
  option("round_size", "integer", null),
  option("private", "boolean", false),
  option("search", "choice", "evolutionary", { choices: ["evolutionary", "ga"] }),
  option("build_timeout_sec", "number", 30),
  option("recording", "text", ""),
  option("only", "texts", []),
  option("evaluator", "object", { number: 3, repeat: 1 }),
  option("input_shapes", "shapes", {}),
];

describe("the options of a new job", () => {
  it("are all asked for, choices first", () => {
    expect(askable(OPTIONS).map(({ name }) => name)).toEqual(["search", "private", "round_size", "build_timeout_sec", "recording", "only", "input_shapes", "evaluator"]);
  });

  it("are sent only where they differ from the default", () => {
    const given = { search: "evolutionary", private: "no", round_size: " ", build_timeout_sec: "30", only: "" };
    expect(chosenOptions(OPTIONS, given)).toEqual({});
  });

  it("are sent as numbers, names, lists and booleans", () => {
    const given = { search: "ga", private: "yes", round_size: "16", build_timeout_sec: "2.5", recording: "/data/7.parquet", only: "conv2d*, matmul" };
    expect(chosenOptions(OPTIONS, given)).toEqual({ search: "ga", private: true, round_size: 16, build_timeout_sec: 2.5, recording: "/data/7.parquet", only: ["conv2d*", "matmul"] });
  });

  it("stand in their fields as another job has them, and are read back alike", () => {
    const values = { search: "ga", private: true, round_size: null, only: ["conv2d*"], evaluator: { number: 5, repeat: 2, flush_l2: "on" }, input_shapes: { "a:0": [1, 3], b: [8] } };
    const given = givenBy(values);
    expect(given).toEqual({ search: "ga", private: "yes", round_size: "", only: "conv2d*", evaluator: "number=5 repeat=2 flush_l2=on", input_shapes: "a:0:1,3 b:8" });
    const { round_size: _, ...rest } = values;
    expect(chosenOptions(OPTIONS, given)).toEqual(rest);
  });

  it("have a pattern that tells shapes from what is none", () => {
    const fits = (text: string): boolean => new RegExp(`^(?:${PATTERNS.shapes})$`, "v").test(text);
    expect([fits("x:1,3 y:8"), fits(""), fits("1,3"), fits("x:n,3")]).toEqual([true, true, false, false]);
  });

  it("have a pattern that tells groups of numbers and words from what is none", () => {
    const fits = (text: string): boolean => new RegExp(`^(?:${PATTERNS.object})$`, "v").test(text);
    expect([fits("number=3 flush_l2=auto"), fits("share=0.5"), fits("number="), fits("auto")]).toEqual([true, true, false, false]);
  });

  it("say in words what an empty field stands for", () => {
    expect(OPTIONS.slice(0, 6).map(standing)).toEqual(["as the planner finds right", "no", "evolutionary", "30", "", "all"]);
    expect([title("cost_model"), title("build_timeout_sec")]).toEqual(["Cost model", "Build timeout in seconds"]);
  });
});
