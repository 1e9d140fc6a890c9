"""The tuned model beside the untuned build and onnxruntime: their answers compared, all timed in turn."""

from functools import partial
from math import inf, isfinite
from pathlib import Path

from mallorn.core.errors import MallornError
from mallorn.core.values.report import FinishReport
from workers.children.again import twice
from workers.finish.agreement import check_numbers
from workers.finish.each_point import compare_points
from workers.finish.job_model import JobModel, TunedModel, device_is_here
from workers.finish.undone import Undone
from workers.racing.engines import ONNXRUNTIME, TUNED, UNTUNED, Engines
from workers.slot.stage import Stage


def compare(model: JobModel, tuned: TunedModel, undone: Undone) -> FinishReport:
    """The comparison's part of the report; what cannot be done is entered in `undone`.

    A tuned model that computes something else is not timed: no speed is claimed for wrong numbers.
    """
    if not undone.attempt("time the whole model", partial(be_here, model.claimed)):
        return FinishReport()
    dynamic = model.claimed.graph.dynamic
    if dynamic is not None:
        return compare_points(model, tuned, undone, dynamic)
    return _compare(model, tuned, undone)


def _compare(model: JobModel, tuned: TunedModel, undone: Undone) -> FinishReport:
    limit = model.whole.largest_error
    with Engines(model.whole, (UNTUNED, TUNED, ONNXRUNTIME), undone.attempt) as engines:
        if tuned.is_large:
            engines.leave_out(UNTUNED)
        elif model.claimed.job.trials == 0:
            _leave_out_untuned(engines, tuned, limit)
        if UNTUNED in engines:
            _compile_untuned(model, engines, undone)
        engines.load({UNTUNED: _untuned(model), TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not check_numbers(errors, limit, undone):
            engines.leave_out(TUNED)
        return _timed(model, engines).model_copy(
            update={f"error_vs_{name}": e if isfinite(e) else None for name, e in errors.items()}
        )


def _leave_out_untuned(engines: Engines, tuned: TunedModel, limit: float) -> None:
    """Where onnxruntime confirms the numbers: compiling the untuned build may take longer than all else."""
    engines.load({TUNED: tuned.library}, (TUNED, ONNXRUNTIME))
    if engines.errors(TUNED).get(ONNXRUNTIME, inf) <= limit:
        engines.leave_out(UNTUNED)


def _compile_untuned(model: JobModel, engines: Engines, undone: Undone) -> None:
    """Engines start meanwhile."""
    untuned = partial(model.whole.compile_untuned, _untuned(model))
    if undone.attempt("compile the untuned model", partial(twice, untuned)) is None:
        engines.leave_out(UNTUNED)


def _untuned(model: JobModel) -> Path:
    return model.whole.folder / "untuned.so"


def be_here(claimed: Stage) -> bool:
    """Raises MallornError where what this host times is not what the job's device would."""
    if not device_is_here(claimed):
        raise MallornError(
            "the device is on another host than this worker",
            hint="mallorn bench MODEL --schedules DIR, on the device's host",
        )
    return True


def _timed(model: JobModel, engines: Engines) -> FinishReport:
    """The race, with this host for itself."""
    with model.alone() as held:
        race = engines.race(held)
    if not race.latency_us:
        return FinishReport()
    return FinishReport(latency_us=race.latency_us, conditions=race.conditions)
