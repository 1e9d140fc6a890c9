import { describe, expect, it } from "vitest";
import type { CostModel } from "../src/api/types";
import { isBack, lines, measures, measureTitle, measureWords, otherSplits } from "../src/costmodels/lines";
import type { Part } from "./samples";

function metrics(known: Part<CostModel["metrics"]>): CostModel["metrics"] {
  return { splits: {}, ...known } as CostModel["metrics"];
}

function model(version: number, changes: Part<CostModel> = {}): CostModel {
  const line = { family: "operator:matmul", target: "{}", name: "xgboost" };
  return {
    ...{ id: version, full_name: `operator:matmul/xgboost@${version}`, ...line, version, active: false, parent_id: null, parent: null },
    ...{ snapshot: null, seen_upto: 0, rows: version * 10, created_at: 0, ...changes, metrics: metrics(changes.metrics ?? {}) },
  } as CostModel;
}

describe("lines of cost models", () => {
  const found = lines([model(1), model(3), model(2, { active: true }), model(1, { id: 9, family: "base:conv2d", rows: 500 })]);

  it("hold a family's versions, newest first, those with most rows on top", () => {
    expect(found.map((line) => [line.family, ...line.versions.map(({ version }) => version)])).toEqual([["base:conv2d", 1], ["operator:matmul", 3, 2, 1]]);
  });

  it("know which version is in use, and what is behind it", () => {
    const line = found[1]!;
    expect(line.active?.version).toBe(2);
    expect([isBack(model(1), line), isBack(model(3), line)]).toEqual([true, false]);
    expect(isBack(model(1), found[0]!)).toBe(false);
  });
});

describe("measures", () => {
  it("are those that any version was judged by, common ones first", () => {
    const versions = [model(1, { metrics: { training_rows: 8 } }), model(2, { metrics: { pairwise: 0.8, training_rows: 16, base: "text", groups: null } })];
    expect(measures(versions)).toEqual(["training_rows", "pairwise"]);
  });

  it("are told in words with what they are shares of", () => {
    expect([measureTitle("pairwise"), measureTitle("top_1")]).toEqual(["Pairs in order", "Top 1"]);
    expect([measureWords("pairwise", 0.82), measureWords("training_rows", 1120), measureWords("rmse", 0.5), measureWords("rmse", undefined)]).toEqual(["82 %", "1,120", "0.500", "–"]);
  });

  it("are of one split, and the others are named beside it", () => {
    const splits = { "by-task": { pairwise: 0.81 }, "within-task": { pairwise: 0.62 } };
    expect(otherSplits(metrics({ split: "by-task", splits }))).toBe("within-task 62 %");
    expect([otherSplits(metrics({ split: "within-task" })), otherSplits(metrics({}))]).toEqual(["", ""]);
  });
});
