"""The whole model with its schedules: checked, and timed beside the untuned build and onnxruntime."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Final

from mallorn.core.errors import MallornError
from workers.children.errors import ChildError
from workers.children.pending import Pending
from workers.faces.engine import Engine, Loaded
from workers.finish.agreement import check_numbers
from workers.finish.stand import Built, Stand, device_is_here
from workers.finish.undone import Undone, twice
from workers.host.load import LoadMeter
from workers.racing.fairly import fair_race
from workers.slot.stage import Stage

ENGINES: Final = {"untuned": "the untuned model", "tuned": "the tuned model", "onnxruntime": "onnxruntime"}
TIME: Final = "time the whole model"


def judge(stand: Stand, built: Built, undone: Undone) -> dict[str, Any]:
    """The model's part of the report; what cannot be done is entered in `undone`.

    A tuned model that computes something else is not timed: no speed is claimed for wrong numbers.
    """
    if not undone.attempt(TIME, partial(_be_here, stand.claimed)):
        return {}
    files = _Files(stand, built)
    with ExitStack() as stack:
        engines = _start(stand.claimed, stack)
        untuned = partial(stand.compile_untuned, files.untuned)
        if undone.attempt("compile the untuned model", partial(twice, untuned)) is None:
            del engines["untuned"]
        held = _load(engines, files, undone)
        errors = _errors(held, files, undone)
        if "tuned" in held and not check_numbers(errors, stand.claimed.options.precision, undone):
            held.pop("tuned").kill()
        told = {f"error_vs_{name}": e if isfinite(e) else None for name, e in errors.items()}
        return _timed(held, stand, undone) | told


@dataclass(frozen=True, slots=True)
class _Files:
    """What the engines read and write."""

    stand: Stand
    built: Built

    @property
    def untuned(self) -> Path:
        return self.stand.folder / "untuned.so"

    def outputs(self, engine: str) -> Path:
        return self.stand.folder / f"{engine}-outputs.npz"


def _be_here(claimed: Stage) -> bool:
    """Raises MallornError where what this host times is not what the job's device would."""
    if not device_is_here(claimed):
        raise MallornError(
            "the device is on another host than this worker",
            hint="mallorn bench MODEL --schedules DIR, on the device's host",
        )
    return True


def _start(claimed: Stage, stack: ExitStack) -> dict[str, Engine]:
    """One process an engine, starting while the model is compiled."""
    env = {"TVM_NUM_THREADS": str(claimed.target.num_cores)}
    engines = {name: stack.enter_context(Engine(env=env, name=f"{name} engine")) for name in ENGINES}
    for child in engines.values():
        child.start()
    return engines


def _load(engines: Mapping[str, Engine], files: _Files, undone: Undone) -> dict[str, Engine]:
    """The engines that hold the model and answered; all load at once, and stand still afterwards."""
    loading = {name: _loading(name, engine, files) for name, engine in engines.items()}
    held = _those_that(engines, "load", lambda name, _: loading[name].wait(), undone)
    return _those_that(held, "run", partial(_save_outputs, files), undone)


def _those_that(
    engines: Mapping[str, Engine], step: str, work: Callable[[str, Engine], Any], undone: Undone
) -> dict[str, Engine]:
    """The engines that a step succeeds with; the others end."""
    kept = {}
    for name, child in engines.items():
        if undone.attempt(f"{step} {ENGINES[name]}", partial(work, name, child)) is None:
            child.kill()
        else:
            kept[name] = child
    return kept


def _loading(name: str, engine: Engine, files: _Files) -> Pending[Loaded]:
    model, target, inputs = files.stand.model, files.stand.claimed.target, str(files.stand.inputs)
    if name == "onnxruntime":
        return engine.load_onnxruntime.begin(str(model), inputs, target.num_cores)
    library = files.built.library if name == "tuned" else files.untuned
    return engine.load_library.begin(str(library), target.text, inputs)


def _save_outputs(files: _Files, name: str, engine: Engine) -> int:
    count = engine.save_outputs(str(files.outputs(name)))
    engine.suspend()
    return count


def _errors(engines: Mapping[str, Engine], files: _Files, undone: Undone) -> dict[str, float]:
    """How far the tuned model's outputs are from each other engine's."""
    found = {}
    for name in engines if "tuned" in engines else ():
        if name == "tuned":
            continue
        error = undone.attempt(f"compare with {ENGINES[name]}", partial(_error, files, name))
        if error is not None:
            found[name] = error
    return found


def _error(files: _Files, other: str) -> float:
    outputs, expected = str(files.outputs("tuned")), str(files.outputs(other))
    return twice(partial(files.stand.graphs.compare_models, outputs, expected))


def _timed(engines: dict[str, Engine], stand: Stand, undone: Undone) -> dict[str, Any]:
    """The race, with this host for itself; an engine that fails in it is left out, the others start again."""
    meter = LoadMeter(lambda: [child.pid for child in engines.values() if child.pid])
    with stand.alone() as held:
        while engines:
            try:
                fair = fair_race(engines, meter, held)
                return {"latency_us": fair.latency_us, "conditions": fair.conditions}
            except ChildError as error:
                failed = [name for name, child in engines.items() if not child.alive]
                if not failed:
                    raise
                for name in failed:
                    undone.leave(f"time {ENGINES[name]}", error.message.partition("\n")[0])
                    del engines[name]
    return {}
