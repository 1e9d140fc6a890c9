"""The tuned model beside the untuned build and onnxruntime: their answers compared, all timed in turn."""

from functools import partial
from math import inf, isfinite
from pathlib import Path
from typing import Final

from mallorn.core.values.report import FinishReport
from workers.children.again import twice
from workers.finish.agreement import check_numbers
from workers.finish.each_point import compare_points
from workers.finish.elsewhere import leave_out_onnxruntime, placed
from workers.finish.job_model import JobModel, TunedModel
from workers.finish.undone import Undone
from workers.racing.engines import TUNED, UNTUNED, Engines
from workers.racing.whole_model import ONNXRUNTIME

TIME: Final = "time the whole model"


def compare(model: JobModel, tuned: TunedModel, undone: Undone) -> FinishReport:
    """The comparison's part of the report; what cannot be done is entered in `undone`.

    A tuned model that computes something else is not timed: no speed is claimed for wrong numbers.
    """
    there = undone.attempt(TIME, partial(placed, model))
    if there is None:
        return FinishReport()
    dynamic = model.claimed.graph.dynamic
    found = undone.attempt(
        TIME,
        partial(compare_points, there, tuned, undone, dynamic)
        if dynamic is not None
        else partial(_compare, there, tuned, undone),
    )
    return found or FinishReport()


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
        leave_out_onnxruntime(model, engines, undone)
        timed = undone.attempt(TIME, partial(_timed, model, engines)) or FinishReport()
        return timed.model_copy(
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


def _timed(model: JobModel, engines: Engines) -> FinishReport:
    """The race, with its host for itself."""
    with model.alone() as held:
        race = engines.race(held)
    if not race.latency_us:
        return FinishReport()
    return FinishReport(latency_us=race.latency_us, conditions=race.conditions)
