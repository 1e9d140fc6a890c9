"""Bias and device time of every stopping rule, compared with a long timing.

python -m benchmarks.stopping DATA_DIR [--candidates 24] [--json FILE]

DATA_DIR holds measured tasks (mallorn record MODEL --data DATA_DIR). Per task, this many valid
candidates are taken: the fastest for one half, and evenly spaced slower ones. Each is built
once and timed by every rule in turn, given the task's best time, and by a long fixed timing of
one second in five parts, the reference. A rule is unbiased if its times over the reference's
are near 1. A rule's winner is the candidate with its lowest time; the headline is the winner's
reference time over the lowest one, for the rule racing, in the worst task.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any, Final

from benchmarks.fresh import fresh_stack
from benchmarks.hosts import describe_host
from mallorn.core.errors import Unavailable
from mallorn.core.job_options import EvaluatorOptions
from mallorn.core.registry import REGISTRY
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.workloads import Workloads, tir_of
from mallorn.db.session import Database
from mallorn.local_service import wait_for_device
from mallorn.research.replay.recorded_task import RecordedTask
from mallorn.research.replay.recorded_tasks_from_dataset import recorded_tasks
from mallorn.workers.interfaces.candidate_compiler import CandidateCompiler
from mallorn.workers.interfaces.device_runner import Runner
from mallorn.workers.interfaces.tensor_arguments import Arguments, unpack_arguments

RULES: Final = sorted(REGISTRY["stopping"])
REFERENCE: Final = EvaluatorOptions(number=3, repeat=5, min_repeat_ms=200)
CALL_SEC: Final = 600.0
CLOSE: Final = 1.05

Times = dict[str, dict[str, float]]  # latency_us and run_ms, keyed by rule, or by "long"


@dataclass(frozen=True)
class Bench:
    """Compiler and runner that build and time candidates."""

    compiler: CandidateCompiler
    runner: Runner
    tracker: str
    folder: Path

    def time(self, task: RecordedTask, tir: str, args: Arguments, trial: Trial) -> Times:
        """Time a candidate by all rules, then the reference. Raises Unavailable."""
        library = str(self.folder / "candidate.so")
        sketch = next(sketch for sketch in task.sketches if sketch.key == trial.candidate.sketch)
        built = self.compiler.build(
            tir, task.target, sketch.trace, trial.candidate.decisions, library, any_size=True
        )

        def once(rule: str, evaluator: EvaluatorOptions) -> dict[str, float]:
            run = self.runner.time_candidate(
                tracker=self.tracker,
                target=task.target,
                artifact=library,
                args=args.with_tensors(built.args),
                evaluator=evaluator,
                stopping=rule,
                candidate_key=trial.candidate.key,
                timeout_sec=CALL_SEC,
                best_us=task.optimum_us,
            )
            if not run.run_us:
                raise Unavailable(f"a candidate that once ran did not: {run.error}")
            return {"latency_us": median(run.run_us), "run_ms": run.run_ms or 0.0}

        times = {rule: once(rule, EvaluatorOptions()) for rule in RULES}
        return times | {"long": once("fixed", REFERENCE)}


def main() -> None:
    args = _arguments()
    database = Database(f"sqlite:///{(args.data / 'mallorn.db').absolute()}")
    tasks = recorded_tasks(database, args.candidates)
    with (
        fresh_stack(args.data) as stack,
        CandidateCompiler() as compiler,
        Runner() as runner,
        tempfile.TemporaryDirectory(prefix="mallorn-stopping-") as folder,
    ):
        wait_for_device(stack)
        info = stack.data.read_stack() if stack.data else None
        if info is None:
            raise Unavailable("the service on this machine is gone")
        bench = Bench(compiler, runner, info.tracker, Path(folder))
        cells = [_task(database, bench, task, args.candidates) for task in tasks]
    result = report(cells)
    if args.json:
        raw = {"benchmark": "stopping", "reference": REFERENCE.model_dump(), **describe_host(), **result}
        args.json.write_text(json.dumps(raw, indent=1) + "\n")
    print("\n".join(lines(result)), flush=True)


def _task(database: Database, bench: Bench, task: RecordedTask, count: int) -> dict[str, Any]:
    with database.session() as session:
        (workload_id,) = Workloads(session).ids([task.workload]).values()
        workload = Workloads(session).get(workload_id)
        tir, args = tir_of(workload), unpack_arguments(workload.args)
    times = [bench.time(task, tir, args, trial) for trial in chosen(task, count)]
    cell = {"name": task.name, "best_us": task.optimum_us, "candidates": times}
    print(_line(cell), flush=True)
    return cell


def chosen(task: RecordedTask, count: int) -> list[Trial]:
    """Return `count` timed trials: the fastest for one half, evenly spaced others."""
    timed = (trial for trial in task.trials if trial.latency_us)
    by_time = sorted(timed, key=lambda trial: trial.latency_us or 0.0)
    best, rest = by_time[: count // 2], by_time[count // 2 :]
    others = min(count - len(best), len(rest))
    return best + [rest[number * len(rest) // others] for number in range(others)]


def report(cells: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return bias, cost and lost speed of every rule over all tasks."""
    rules = {rule: _rule(rule, cells) for rule in RULES}
    return {"rules": rules, "tasks": list(cells), "headline": rules["racing"]["worst_winner"]}


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as lines of text, the headline last."""
    answer = [
        f"{rule:9} {facts['run_ms']:.0f} ms a candidate; times over the long ones: {facts['bias_close']:.4f} "
        f"of those within 5 % of the best ({facts['spread_close']:.4f} off, in the middle), "
        f"{facts['bias']:.4f} of all; its winners are {facts['winner']:.4f} of the best, "
        f"{facts['worst_winner']:.4f} in the worst task"
        for rule, facts in found["rules"].items()
    ]
    return [*answer, f"racing's winner over the true one, worst task: {found['headline']:.4f}"]


def _rule(rule: str, cells: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    ratios = list(_ratios(rule, cells))
    close = [ratio for ratio, near in ratios if near]
    winners = [_winner(rule, cell["candidates"]) for cell in cells]
    return {
        "run_ms": fmean(times[rule]["run_ms"] for cell in cells for times in cell["candidates"]),
        "bias": median(ratio for ratio, _ in ratios),
        "bias_close": median(close),
        "spread_close": median(abs(ratio - 1) for ratio in close),
        "winner": fmean(winners),
        "worst_winner": max(winners),
    }


def _ratios(rule: str, cells: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, bool]]:
    """Yield times over the reference's, and whether candidates are near the task's best."""
    for cell in cells:
        best_us = min(times["long"]["latency_us"] for times in cell["candidates"])
        for times in cell["candidates"]:
            long_us = times["long"]["latency_us"]
            yield times[rule]["latency_us"] / long_us, long_us <= CLOSE * best_us


def _winner(rule: str, candidates: Sequence[Times]) -> float:
    """Return the reference time of the rule's winner over the lowest reference time."""
    winner = min(candidates, key=lambda times: times[rule]["latency_us"])
    return winner["long"]["latency_us"] / min(times["long"]["latency_us"] for times in candidates)


def _line(cell: Mapping[str, Any]) -> str:
    winners = ", ".join(f"{rule} {_winner(rule, cell['candidates']):.4f}" for rule in RULES)
    return f"{cell['name']:40} best {cell['best_us']:.1f} us; winners over the true one: {winners}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--candidates", type=int, default=24, help="of each task")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
