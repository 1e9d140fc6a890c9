/** Rows as the API sends them, with what a test is about changed. */
import type { Job, MeasuredRecord, Round, Task } from "../src/api/types";

/** As much of something as a test is about. */
export type Part<Whole> = Whole extends readonly (infer Item)[] ? Part<Item>[] : Whole extends object ? { [Key in keyof Whole]?: Part<Whole[Key]> } : Whole;

export function job(changes: Part<Job> = {}): Job {
  const plain = {
    id: "j1",
    owner: "local",
    name: "mlp.onnx",
    model_id: "m",
    target: '{"kind":"llvm","num-cores":2}',
    trials: 100,
    minutes: null,
    seed: 0,
    priority: 0,
    labels: {},
    options: {},
    state: "tuning",
    waiting_because: "",
    ended_because: "",
    hint: "",
    cause: "other",
    progress: { step: null, trials: 0, open_candidates: 0, failures: {}, unbuilt_candidates: 0, tasks: 2, tasks_measured: 0, estimated_us: null },
    graph: null,
    report: null,
    exported: false,
    created_at: 1000,
    started_at: 1000,
    finished_at: null,
    suggest: null,
    warnings: [],
  };
  return { ...plain, ...changes } as Job;
}

export function task(index: number, changes: Partial<Task> = {}): Task {
  return {
    index,
    name: `task${index}`,
    flops: 1e6,
    weight: 1,
    gflops: null,
    latency_us: 10,
    weighted_latency_us: 10,
    stock_us: null,
    trials: 0,
    failures: 0,
    state: "waiting",
    reason: "",
    family: "operator:matmul",
    family_why: "",
    workload: `w${index}`,
    ...changes,
  };
}

export function round(index: number, changes: Partial<Round> = {}): Round {
  return {
    id: index,
    index,
    task_index: 0,
    task_name: "task0",
    weight: 1,
    size: 8,
    trials: 8,
    failures: 0,
    policy: "dynatune",
    score: null,
    why: "it promises most",
    forecast: null,
    previous_best_us: null,
    best_us: null,
    gain_us: null,
    is_in_interval: null,
    searcher: "evolutionary",
    cost_model: null,
    proposal: null,
    cost_model_version: null,
    state: "done",
    attempt: 1,
    worker: null,
    seconds: 1,
    reason: { policy: "dynatune", score: null, why: "it promises most", forecast: null, skipped_parts: [] },
    error: "",
    stats: null,
    created_at: 1000 + index,
    started_at: 1000 + index,
    finished_at: 1001 + index,
    ...changes,
  };
}

export function record(id: number, changes: Partial<MeasuredRecord> = {}): MeasuredRecord {
  return {
    id,
    job_id: "j1",
    round_id: 1,
    slot: id,
    kind: "trial",
    workload: "w0",
    workload_name: "task0",
    target: "{}",
    context_id: 1,
    sketch: "s",
    decisions: [],
    outcome: "ok",
    latency_us: 10,
    bound_us: null,
    disturbed: null,
    run_us: [10],
    error: null,
    device: "d",
    build_ms: 1,
    run_ms: 1,
    predicted: null,
    origin: "mutation",
    created_at: 1000 + id,
    ...changes,
  };
}
