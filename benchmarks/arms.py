"""The two arms of a comparison, in separate processes: Mallorn's service and stock TVM."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.fresh import fresh_stack
from mallorn.client.coordinator_client import Client
from mallorn.client.job import Job
from mallorn.core.targets import Target
from mallorn.workers.interfaces.model_compiler import ModelCompiler
from mallorn.workers.interfaces.whole_model_engine import Engine
from mallorn.workers.tvm.network.graph_recipes import recipe_for
from mallorn.workers.whole_model.interleaved_timing import time_interleaved
from mallorn_research.commands.wait_until_tuned import wait_for_device

RECORD = "workload", "sketch", "decisions", "outcome", "latency_us", "run_us", "run_ms", "origin", "predicted"


@dataclass(frozen=True)
class Arm:
    """Result of an arm. `tuning_sec` ends at the last trial, `total_sec` after the export."""

    trials: int
    failures: int
    tuning_sec: float
    total_sec: float
    schedules: Path
    details: dict[str, Any] = field(default_factory=dict)

    def figures(self) -> dict[str, Any]:
        row = asdict(self) | {"schedules": str(self.schedules)}
        if self.trials:
            row["tuning_sec_per_trial"] = self.tuning_sec / self.trials
            row["total_sec_per_trial"] = self.total_sec / self.trials
        return row


def count_tasks(model: Path, target: Target, recipe: str) -> int:
    """Return the number of tasks of a model after a recipe."""
    return len(task_keys(model, target, recipe))


def task_keys(model: Path, target: Target, recipe: str) -> list[str]:
    """Return the workload keys of a model's tasks after a recipe."""
    with ModelCompiler() as graphs:
        model_tasks = graphs.extract(str(model), target.text, recipe_for(recipe, target), {})
    return [task.key for task in model_tasks.tasks]


def mallorn_arm(
    model: Path,
    target: Target,
    trials: int,
    seed: int,
    folder: Path,
    options: Mapping[str, Any],
    *,
    keep_records: bool = False,
) -> Arm:
    """Run one job on a new data directory; the clock starts when the service is ready."""
    with fresh_stack(folder / "data") as stack:
        wait_for_device(stack)
        start = time.monotonic()
        job = stack.api.submit(model, target.text, trials=trials, seed=seed, **options)
        tuned_sec = None
        while not job.state.is_final:
            if tuned_sec is None and job.status.state in ("finishing", "done"):
                tuned_sec = time.monotonic() - start
            time.sleep(0.2)
        total_sec = time.monotonic() - start
        job.raise_for_state()
        report = job.body["report"]
        failures = sum(count for outcome, count in report["outcomes"].items() if outcome != "ok")
        schedules = job.schedules(folder / "schedules")
        details = {"report": report, "rounds": [row.to_stored_json() for row in job.rounds()]}
        if keep_records:
            details["records"] = _records(stack.api, job)
    return Arm(report["trials"], failures, tuned_sec or total_sec, total_sec, schedules, details)


def stock_arm(
    model: Path, target: Target, trials: int, seed: int, folder: Path, recipe: str, batch: int = 64
) -> Arm:
    """Run stock tune_relax on the module of the same recipe, with as many threads."""
    work_dir = folder / "stock"
    work_dir.mkdir(parents=True)
    command = [sys.executable, "-m", "benchmarks.stock", str(model), str(work_dir)]
    command += [
        "--target",
        target.text,
        "--recipe",
        recipe_for(recipe, target).model_dump_json(),
    ]
    command += ["--trials", str(trials), "--batch", str(batch), "--seed", str(seed)]
    env = os.environ | {"TVM_NUM_THREADS": str(target.num_cores)}
    with (folder / "stock.log").open("wb") as log:
        done = subprocess.run(command, env=env, stdout=subprocess.PIPE, stderr=log, check=True)
    result = json.loads(done.stdout.decode().strip().splitlines()[-1])
    seconds = float(result["seconds"])
    details = {"profile_sec": result["profile_sec"]}
    return Arm(result["trials"], result["failures"], seconds, seconds, work_dir, details)


def _records(client: Client, job: Job) -> list[dict[str, Any]]:
    """Return a job's trials, oldest first, each with its seconds since submission."""
    rows = [row for row in client.records(job=job.id, page_size=1000) if row.kind == "trial"]
    start = job.status.created_at
    return [
        row.model_dump(mode="json", include=set(RECORD)) | {"at_sec": row.created_at - start}
        for row in reversed(rows)
    ]


def compare_latency(
    model: Path,
    target: Target,
    recipe: str,
    schedules: Mapping[str, Path],
    folder: Path,
    recipes: Mapping[str, str] | None = None,
) -> dict[str, dict[str, Any]]:
    """Time the model compiled with each arm's schedules, and onnxruntime, in turn.

    `recipes` holds the recipes of arms that use another than `recipe`.
    """
    env = {"TVM_NUM_THREADS": str(target.num_cores)}
    inputs = str(folder / "inputs.npz")
    steps = recipe_for(recipe, target)
    hits: dict[str, Any] = {}
    with ExitStack() as stack:
        graphs = stack.enter_context(ModelCompiler(env=env))
        ranges = graphs.extract(str(model), target.text, steps, {}).graph.input_ranges
        graphs.make_inputs(str(model), inputs, 0, {}, ranges)
        engines: dict[str, Engine] = {}
        for name, directory in schedules.items():
            library = str(folder / f"{name}.so")
            arm_recipe = recipe_for((recipes or {}).get(name, recipe), target)
            compiled = graphs.compile_model(str(model), str(directory), target.text, arm_recipe, library, {})
            hits[name] = {"found": compiled.found, "of": compiled.of, "missing": compiled.missing}
            engines[name] = stack.enter_context(Engine(env=env, name=name))
            engines[name].load_library(library, target.text, inputs)
        engines["onnxruntime"] = stack.enter_context(Engine(env=env, name="onnxruntime"))
        engines["onnxruntime"].load_onnxruntime(str(model), inputs, target.num_cores)
        times = time_interleaved(engines, passes=9)
    return {name: timing.to_stored_json() | hits.get(name, {}) for name, timing in times.items()}
