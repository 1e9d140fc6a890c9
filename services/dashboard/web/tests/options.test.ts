import { describe, expect, it } from "vitest";
import type { JobOption } from "../src/api/types";
import { askable, chosenOptions, standing, title } from "../src/jobs/options";

function option(name: string, kind: JobOption["kind"], standard: unknown, changes: Partial<JobOption> = {}): JobOption {
  return { name, kind, default: standard, words: "", choices: [], optional: standard === null, minimum: null, maximum: null, above: null, ...changes };
}

const OPTIONS = [
  option("round_size", "integer", null),
  option("search", "choice", "evolutionary", { choices: ["evolutionary", "ga"] }),
  option("build_timeout_sec", "number", 30),
  option("only", "texts", []),
  option("evaluator", "object", {}),
];

describe("the options of a new job", () => {
  it("are asked for by kind, choices first; nested ones are not", () => {
    expect(askable(OPTIONS).map(({ name }) => name)).toEqual(["search", "round_size", "build_timeout_sec", "only"]);
  });

  it("are sent only where they differ from the default", () => {
    const given = { search: "evolutionary", round_size: " ", build_timeout_sec: "30", only: "" };
    expect(chosenOptions(OPTIONS, given)).toEqual({});
  });

  it("are sent as numbers, names and lists", () => {
    const given = { search: "ga", round_size: "16", build_timeout_sec: "2.5", only: "conv2d*, matmul" };
    expect(chosenOptions(OPTIONS, given)).toEqual({ search: "ga", round_size: 16, build_timeout_sec: 2.5, only: ["conv2d*", "matmul"] });
  });

  it("say in words what an empty field stands for", () => {
    expect(OPTIONS.slice(0, 4).map(standing)).toEqual(["as the planner finds right", "evolutionary", "30", "all"]);
    expect([title("cost_model"), title("build_timeout_sec")]).toEqual(["Cost model", "Build timeout in seconds"]);
  });
});
