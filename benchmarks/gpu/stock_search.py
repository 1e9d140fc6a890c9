"""Search one task with stock MetaSchedule, in a process of its own.

    python -m benchmarks.gpu.stock_search JSON

Space, evolutionary search, cost model, builder processes and database are MetaSchedule's; so is the choice
of what is built and timed. Code is generated as for Mallorn's candidates, and times come from the same timer.
The trials are appended to the task's file; MetaSchedule's own database stays beside it.
"""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule import tune_tir
from tvm.s_tir.meta_schedule.builder import LocalBuilder
from tvm.s_tir.meta_schedule.runner import PyRunner, RunnerInput, RunnerResult
from tvm.s_tir.meta_schedule.runner.runner import PyRunnerFuture

from benchmarks.gpu.gpu_turns import SEARCHED, GpuTurns, Run, timing
from benchmarks.gpu.product_search import trial_of
from benchmarks.gpu.recording import model_task
from benchmarks.gpu.search_places import STOCK
from benchmarks.gpu.trials import MeasuredCandidate, TrialFile
from mallorn.core.outcomes import Outcome
from mallorn.core.targets import Target
from mallorn.core.values.candidate import Candidate, Sketch
from mallorn.core.values.trial import Trial
from mallorn.stack.supervised_process import DieWithParent
from mallorn.workers.tvm.programs.parsed_program_cache import is_choice, parse_tvm_target
from mallorn.workers.tvm.space.sketches import choices_of, sketch_key, to_plain_value, trace_text

BATCH: Final = 64  # trials of a round, MetaSchedule's default
FIGURES: Final = "figures.json"


def prepare_builder() -> None:
    """Prepare a builder process of MetaSchedule: CUDA's compiler, if it is needed."""
    from mallorn.workers.host.linker import prepare_linking

    prepare_linking()


def build(module: Any, target: Any, _params: Any) -> Any:
    """Compile a candidate as the product does; keep ptxas's figures for `export`."""
    from dataclasses import asdict

    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    from mallorn.graphc.export.code_generation import compile_to_library

    module = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(module)
    options = {"tirx.disable_assert": True}
    if target.kind.name != "cuda":
        return compile_to_library(module, target, **options), []
    from mallorn.kinds.cuda.compiler.cuda_kernel_resources import compile_for_cuda

    built = compile_for_cuda(module, target, **options)
    return built.library, [asdict(kernel) for kernel in built.kernels]


def export(built: Any) -> str:
    """Write a library to a folder of its own, with ptxas's figures; return its path."""
    import tempfile

    from mallorn.workers.host.linker import link_shared

    library, figures = built
    folder = Path(tempfile.mkdtemp(prefix="stock-"))
    (folder / FIGURES).write_text(json.dumps(figures))
    library.export_library(str(folder / "library.so"), fcompile=link_shared)
    return str(folder / "library.so")


@derived_object
class TimedLater(PyRunnerFuture):
    """The result of a library that is timed in its turn."""

    def __init__(self, pending: "Future[Run]", note: Callable[[Run], RunnerResult]) -> None:
        super().__init__()
        self._pending, self._note = pending, note

    def done(self) -> bool:
        return self._pending.done()

    def result(self) -> RunnerResult:
        return self._note(self._pending.result())


@derived_object
class SharedGpuRunner(PyRunner):
    """Times libraries by the timer of all methods, and stores what it was told of each."""

    def __init__(self, gpu: GpuTurns, call: Any, results: list[tuple[Path, Any, Any]]) -> None:
        super().__init__()
        self._gpu, self._call, self._results = gpu, call, results
        self._best_us: float | None = None

    def run(self, runner_inputs: list[RunnerInput]) -> list[Any]:
        return [self._begin(Path(str(each.artifact_path))) for each in runner_inputs]

    def _begin(self, library: Path) -> Any:
        def note(run: Run) -> RunnerResult:
            answer = run.answer
            run_us = answer.get("run_us") or []
            if answer["outcome"] == "ok" and run_us:
                best_us = min(run_us)
                self._best_us = best_us if self._best_us is None else min(best_us, self._best_us)
                result = RunnerResult([us / 1e6 for us in run_us], None)
            else:
                result = RunnerResult(None, answer.get("error") or answer["outcome"])
            self._results.append((library, answer, run))
            return result

        call = timing(self._call, library, self._best_us, SEARCHED, check=False)
        return TimedLater(self._gpu.submit(call), note)


def main() -> None:
    """Search until the trials are used up; the parent may end this process at any time."""
    DieWithParent(signal.SIGKILL, os.getppid())()
    order = json.loads(sys.argv[1])
    target, folder = Target(order["target"]), Path(order["folder"])
    task, file = model_task(order["task"]), TrialFile(Path(order["trials_file"]))
    gpu = GpuTurns(folder / "session", Path(order["lock"]), order["manifest"])
    measured: list[tuple[Path, Any, Any]] = []
    keep = Keeper(task.name, task.tir, target, order["seed"], file, Path(order["libraries"]), measured)
    try:
        tune_tir(
            tvm.ir.load_json(task.tir),
            parse_tvm_target(target.text),
            str(folder / "database"),
            max_trials_global=order["left"],
            num_trials_per_iter=min(BATCH, order["left"]),
            builder=LocalBuilder(
                max_workers=order["builders"],
                timeout_sec=60.0,
                f_build=build,
                f_export=export,
                initializer=prepare_builder,
            ),
            runner=SharedGpuRunner(gpu, order["call"], measured),
            # First, because MetaSchedule's own callbacks remove libraries.
            measure_callbacks=[keep_callback(keep), *default_callbacks()],
            num_tuning_cores=order["builders"],
            seed=order["seed"] + 1,  # MetaSchedule does not accept 0
        )
    finally:
        gpu.close()


def default_callbacks() -> list[Any]:
    from tvm.s_tir.meta_schedule.measure_callback import MeasureCallback

    return list(MeasureCallback.create("default"))


class Keeper:
    """Stores every measured candidate of MetaSchedule as a trial."""

    def __init__(
        self,
        task: str,
        tir: str,
        target: Target,
        seed: int,
        file: TrialFile,
        libraries: Path,
        measured: list[tuple[Path, Any, Any]],
    ) -> None:
        self._task, self._tir, self._target, self._seed = task, tir, target, seed
        self._file, self._libraries, self._measured = file, libraries, measured
        known = file.of(STOCK, seed)
        self._base_sec = known[-1].at_sec if known else 0.0
        self._began_sec = time.monotonic()

    def keep(self, schedules: Sequence[Any], errors: Sequence[str | None]) -> None:
        """Store a round: schedules in the order of measuring, and errors of builds."""
        times = iter(self._measured)
        for schedule, error in zip(schedules, errors, strict=True):
            number = len(self._file.of(STOCK, self._seed))
            sketch, decisions = split_trace(self._tir, schedule.trace)
            candidate = Candidate(sketch.key, decisions)
            kernels: list[Any] = []
            held_sec, name = 0.0, ""
            if error is not None:
                trial = Trial(candidate, Outcome.BUILD_ERROR, error=error[:1000])
            else:
                library, answer, run = next(times)
                trial, held_sec = trial_of(answer, candidate, None), run.held_sec
                kernels = json.loads((library.parent / FIGURES).read_text())
                name = f"stock-{self._seed}-{number}.so"
                shutil.move(library, self._libraries / name)
            self._file.append(
                MeasuredCandidate(
                    self._task,
                    self._target.text,
                    STOCK,
                    self._seed,
                    number,
                    sketch,
                    trial,
                    kernels,
                    self._base_sec + time.monotonic() - self._began_sec,
                    held_sec,
                    name,
                )
            )
        self._measured.clear()


def keep_callback(keeper: Keeper) -> Any:
    """Return MetaSchedule's callback that stores each round's results."""
    from tvm.s_tir.meta_schedule.measure_callback import PyMeasureCallback

    @derived_object
    class StoreTrials(PyMeasureCallback):
        def apply(
            self,
            task_scheduler: Any,
            task_id: int,
            measure_candidates: list[Any],
            builder_results: list[Any],
            runner_results: list[Any],
        ) -> None:
            errors = [None if each.error_msg is None else str(each.error_msg) for each in builder_results]
            keeper.keep([candidate.sch for candidate in measure_candidates], errors)

    return StoreTrials()


def split_trace(tir: str, trace: Any) -> tuple[Sketch, tuple[int, ...]]:
    """Return a trace's sketch, without postprocessing and decisions, and its decisions."""
    from tvm.s_tir.schedule import Trace

    plain = trace.simplified(remove_postproc=True)
    insts = list(plain.insts)
    decisions: list[int] = []
    for inst in insts:
        if is_choice(inst):
            value = to_plain_value(plain.decisions[inst])
            decisions += value if isinstance(value, list) else [value]
    text = trace_text(Trace(insts, {}))
    return Sketch(sketch_key(text), text, choices_of(tir, insts, plain, {})), tuple(decisions)


if __name__ == "__main__":
    # Builder processes import the functions above by the module's name.
    from benchmarks.gpu.stock_search import main as run_as_module

    run_as_module()
