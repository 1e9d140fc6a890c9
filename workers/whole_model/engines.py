"""Loads one model in several engines, compares their outputs, and times them in turn."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol, Self, TypeVar

from mallorn.core.values.finish_report import ModelLatency
from mallorn.graphc.export.export_checks import is_relax_file, overflow_note
from mallorn.results import speedup
from mallorn.workers.host.host_memory import is_large
from mallorn.workers.host.load_meter import LoadMeter
from mallorn.workers.interfaces.whole_model_engine import LoadedEngine
from mallorn.workers.subprocesses.errors import ChildError, retry_after_crash
from mallorn.workers.whole_model import interleaved_timing
from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME, ModelEngine, WholeModel
from mallorn.workers.whole_model.device_engine import read_device_load

TUNED: Final = speedup.TUNED
UNTUNED: Final = "untuned"
CONSTANT_OUTPUT: Final = "it is the same number throughout for all inputs that were tried"
WITH_INPUTS: Final = "give inputs that mean something: --inputs samples.npz"
TITLES: Final = {UNTUNED: "the untuned model", TUNED: "the tuned model"}
T = TypeVar("T")


class Attempt(Protocol):
    """Runs a named step for one engine. Returns the step's result, or None if it failed and
    the comparison goes on without that engine."""

    def __call__(self, step: str, work: Callable[[], T], /) -> T | None: ...


def raise_failures(_step: str, work: Callable[[], T]) -> T | None:
    """Run a step and let its errors propagate, for callers that need every engine."""
    return work()


def title(name: str) -> str:
    """Return an engine's name for messages to users."""
    return TITLES.get(name, name)


class Engines:
    """The engines of one comparison, without onnxruntime for a module of TVM. Each is a
    process, or all share a device. If `attempt` returns None, its engine is dropped."""

    def __init__(self, model: WholeModel, names: Iterable[str], attempt: Attempt = raise_failures) -> None:
        self._model = model
        self._attempt = attempt
        if is_relax_file(model.path):
            names = [name for name in names if name != ONNXRUNTIME]
        self._engines = {name: model.engine(name) for name in names}
        self._ran: set[str] = set()  # engines that ran and saved their outputs
        self._large = False
        self.own_error: float | None = None  # of onnxruntime with a quantised file

    def load(self, libraries: Mapping[str, Path], names: Iterable[str] | None = None) -> None:
        """Load the model in the named engines, by default in all, run it once in each and
        save the outputs; then suspend the engine. Engines load in parallel, but one by one
        if the model is large for this host's memory."""
        pending = [name for name in names or self._engines if name in self._engines and name not in self._ran]
        self._large |= any(is_large(path.stat().st_size) for path in libraries.values() if path.exists())
        loads: dict[str, Callable[[], LoadedEngine]] = {}
        for group in [[name] for name in pending] if self._large else [pending]:
            for name in group:
                loads[name] = self._model.begin_loading(self._engines[name], libraries.get(name))
            for engine in self._run_in_each(group, "load", lambda name, _engine: loads[name]()):
                if engine.own_error is not None:
                    self.own_error = engine.own_error

        def save_outputs(name: str, engine: ModelEngine) -> int:
            others = [str(path) for path in self._model.other_inputs_files]
            count = engine.save_outputs(str(self._model.outputs_file(name)), others)
            engine.suspend()
            self._ran.add(name)
            return count

        self._run_in_each(pending, "run", save_outputs)

    def errors(self, name: str) -> dict[str, float]:
        """Return an engine's relative output error against each other one that ran."""
        error_by_engine: dict[str, float] = {}
        if name not in self._engines:
            return error_by_engine
        outputs = self._model.outputs_file(name)
        for other in [other for other in self._engines if other in self._ran and other != name]:
            work = partial(self._model.compute_output_error, outputs, self._model.outputs_file(other))
            error = self._attempt(f"compare with {title(other)}", partial(retry_after_crash, work))
            if error is not None:
                error_by_engine[other] = error
        return error_by_engine

    def find_constant_outputs(self) -> list[int]:
        """Return the indices of outputs that were one number for all inputs: they are not
        checked. They are read from onnxruntime's outputs, if it ran."""
        names = [name for name in (ONNXRUNTIME, UNTUNED, TUNED) if name in self._ran]
        if not names:
            return []
        find = partial(self._model.find_constant_outputs, self._model.outputs_file(names[0]))
        return self._attempt("see whether the outputs vary", partial(retry_after_crash, find)) or []

    @property
    def accepted_error(self) -> float:
        """Largest relative error between outputs that is accepted."""
        return self._model.accepted_error(self.own_error)

    def overflow_note(self, error: float) -> str:
        """Return how the tuned model may have got such an error in float16; else empty."""
        return overflow_note(self._model.precision, error)

    def latencies(self, passes: int = interleaved_timing.PASSES) -> dict[str, ModelLatency]:
        """Time all engines in turn, disturbed or not, and return their latencies."""
        return interleaved_timing.time_interleaved(self._engines, passes)

    def kernel_times(self, seconds: float) -> dict[str, dict[str, float]]:
        """Return the microseconds per run of each kernel, by engine and kernel name."""
        kernels_us = interleaved_timing.time_kernels_interleaved(list(self._engines.values()), seconds)
        return dict(zip(self._engines, kernels_us, strict=True))

    def time_undisturbed(self, is_alone: bool) -> interleaved_timing.FairRace:
        """Time all engines, if possible undisturbed. Return their latencies and the
        disturbances, or an empty result if no engine is left. If an engine fails, it is
        dropped and the rest are timed again. `is_alone` is False if this service does other
        work meanwhile, which is reported as a disturbance."""
        if (pool := self._model.device_pool) is None:
            read_load = LoadMeter(lambda: [e.pid for e in self._engines.values() if e.pid]).read_load
        else:
            read_load = partial(read_device_load, pool)
        while self._engines:
            try:
                return interleaved_timing.time_undisturbed(self._engines, read_load, is_alone)
            except ChildError as error:
                failed = [name for name, engine in self._engines.items() if not engine.alive]
                if not failed:
                    raise
                for name in failed:
                    self._attempt(f"time {title(name)}", partial(_fail, error))
                    self.drop_engine(name)
        return interleaved_timing.FairRace({}, (), 0.0)

    def drop_engine(self, name: str) -> None:
        """Drop an engine and release its process; the other engines continue."""
        self._model.release(name, self._engines.pop(name), kills=self._large)

    def __contains__(self, name: str) -> bool:
        return name in self._engines

    def __enter__(self) -> Self:
        for engine in self._engines.values():
            engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._engines):
            self.drop_engine(name)
        self._model.release_device()

    def _run_in_each(self, names: Iterable[str], step: str, work: Callable[[str, ModelEngine], T]) -> list[T]:
        results = []
        for name in [name for name in names if name in self._engines]:
            result = self._attempt(f"{step} {title(name)}", partial(work, name, self._engines[name]))
            if result is None:
                self.drop_engine(name)
            else:
                results.append(result)
        return results


def _fail(error: ChildError) -> NoReturn:
    raise error
