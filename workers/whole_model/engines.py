"""Several engines that hold one model: loaded side by side, compared, and timed in turn."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NoReturn, Protocol, Self, TypeVar

from mallorn.core.values.finish_report import ModelLatency
from mallorn.results import speedup
from workers.host.host_memory import is_large
from workers.subprocesses.crash_retry_and_advice import twice
from workers.subprocesses.errors import ChildError
from workers.whole_model.compiled_model import Held, WholeModel
from workers.whole_model.interleaved_timing import (
    PASSES,
    FairRace,
    time_interleaved,
    time_kernels_interleaved,
    time_undisturbed,
)

TUNED: Final = speedup.TUNED
UNTUNED: Final = "untuned"
TITLES: Final = {UNTUNED: "the untuned model", TUNED: "the tuned model"}
T = TypeVar("T")


class Attempt(Protocol):
    """Runs a step and returns its result, or None if it failed and the rest goes on without it."""

    def __call__(self, step: str, work: Callable[[], T], /) -> T | None: ...


def insist(_step: str, work: Callable[[], T]) -> T | None:
    """Every step is needed: what fails is raised."""
    return work()


def title(name: str) -> str:
    """An engine as people call it."""
    return TITLES.get(name, name)


class Engines:
    """One process per engine, or one device for all.

    An engine that fails a step is left out if `attempt` lets the others go on.
    """

    def __init__(self, model: WholeModel, names: Iterable[str], attempt: Attempt = insist) -> None:
        self._model = model
        self._attempt = attempt
        self._held = {name: model.engine(name) for name in names}
        self._ran: set[str] = set()  # and wrote what they computed
        self._large = False
        self.own_error: float | None = None  # onnxruntime's in a quantised file

    def load(self, libraries: Mapping[str, Path], names: Iterable[str] | None = None) -> None:
        """Load the model in these engines, or in all that have not; each runs it and is suspended.

        All load at once, or one after another where the model is large for this host's memory.
        """
        chosen = [name for name in names or self._held if name in self._held and name not in self._ran]
        self._large |= any(is_large(path.stat().st_size) for path in libraries.values() if path.exists())
        for together in [[name] for name in chosen] if self._large else [chosen]:
            self._load(together, libraries)
        self._each(chosen, "run", self._save_outputs)

    def _load(self, names: Sequence[str], libraries: Mapping[str, Path]) -> None:
        loading = {name: self._model.begin_loading(self._held[name], libraries.get(name)) for name in names}
        loaded = self._each(names, "load", lambda name, _: loading[name].wait())
        self.own_error = next((one.own_error for one in loaded if one.own_error is not None), self.own_error)

    def errors(self, of: str) -> dict[str, float]:
        """How far an engine's outputs are from those of each other one that ran."""
        others = [name for name in self._held if name in self._ran - {of}] if of in self._held else []
        outputs = self._model.outputs(of)
        found: dict[str, float] = {}
        for name in others:
            work = partial(self._model.error, outputs, self._model.outputs(name))
            error = self._attempt(f"compare with {title(name)}", partial(twice, work))
            if error is not None:
                found[name] = error
        return found

    @property
    def largest_error(self) -> float:
        """How far outputs may be from each other."""
        return self._model.largest_error(self.own_error)

    def latencies(self, passes: int = PASSES) -> dict[str, ModelLatency]:
        """What a run takes in each engine, whatever else this host does."""
        return time_interleaved(self._held, passes)

    def kernel_times(self, seconds: float) -> dict[str, dict[str, float]]:
        """Microseconds a run of each engine's model spends in each of its kernels."""
        return dict(
            zip(self._held, time_kernels_interleaved(list(self._held.values()), seconds), strict=True)
        )

    def race(self, alone: bool) -> FairRace:
        """Latencies of all engines and how quiet the host was; empty if no engine is left.

        An engine that fails while it is timed is left out, and the others start again.
        """
        meter = self._model.meter(lambda: [engine.pid for engine in self._held.values() if engine.pid])
        while self._held:
            try:
                return time_undisturbed(self._held, meter, alone)
            except ChildError as error:
                failed = [name for name, engine in self._held.items() if not engine.alive]
                if not failed:
                    raise
                for name in failed:
                    self._attempt(f"time {title(name)}", partial(_fail, error))
                    self.leave_out(name)
        return FairRace({}, (), 0.0)

    def leave_out(self, name: str) -> None:
        """Part with an engine; the others go on."""
        self._model.put_away(name, self._held.pop(name), self._large)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def __enter__(self) -> Self:
        for engine in self._held.values():
            engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self._held):
            self.leave_out(name)
        self._model.release_device()

    def _each(self, names: Iterable[str], step: str, work: Callable[[str, Held], T]) -> list[T]:
        found = []
        for name in [name for name in names if name in self._held]:
            done = self._attempt(f"{step} {title(name)}", partial(work, name, self._held[name]))
            if done is None:
                self.leave_out(name)
            else:
                found.append(done)
        return found

    def _save_outputs(self, name: str, engine: Held) -> int:
        count = engine.save_outputs(str(self._model.outputs(name)))
        engine.suspend()
        self._ran.add(name)
        return count


def _fail(error: ChildError) -> NoReturn:
    raise error
