"""The tuned model beside the untuned build and onnxruntime: their answers compared, all timed in turn.

At each point of a range of shapes the untuned build is left out: at large sizes one run may take minutes.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from typing import Final

from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.finish_report import Conditions, FinishReport, PointTimes
from workers.finish.job_model import BENCH, ELSEWHERE, JobModel, TunedModel, placed
from workers.finish.step_log import StepLog
from workers.subprocesses.crash_retry_and_advice import twice
from workers.whole_model.compiled_model import ONNXRUNTIME
from workers.whole_model.engines import TUNED, UNTUNED, Engines, title

BESIDE = "Other work of this service went on while the points were timed."
BESIDE_IT: Final = "time onnxruntime beside it"
TIME: Final = "time the whole model"
CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def compare_points(model: JobModel, tuned: TunedModel, undone: StepLog, dynamic: Dynamic) -> FinishReport:
    """The comparison's part of the report; a point that computes something else is not timed."""
    with model.alone() as held:
        points = [_at(model, tuned, undone, dynamic, point) for point in dynamic.points]
    errors = [point.error for point in points if point.error is not None]
    return FinishReport(
        points=points,
        latency_us=points[-1].latency_us,
        error_vs_onnxruntime=max(errors, default=None),
        conditions=Conditions(steady=held, note="" if held else BESIDE),
    )


def _at(
    model: JobModel, tuned: TunedModel, undone: StepLog, dynamic: Dynamic, point: dict[str, int]
) -> PointTimes:
    model.claimed.lease.check()
    # Of what grows half lies behind the smallest point, as steps are; nothing yet behind others.
    step = point == dynamic.points[0]
    point = point | {name: dynamic.ranges[name][1] // 2 * step for name in dynamic.grows}
    name = " ".join(f"{dim}={size}" for dim, size in point.items())
    whole = replace(model.whole, input_shapes=dynamic.shapes(point))
    with Engines(whole, (TUNED, ONNXRUNTIME), undone.attempt) as engines:
        engines.load({TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not _computes_the_same(errors, engines, undone):
            engines.leave_out(TUNED)
        _leave_out_onnxruntime(model, engines, undone)
        latency_us = undone.attempt(f"time the model at {name}", engines.latencies) or {}
    error = errors.get(ONNXRUNTIME)
    return PointTimes(
        sizes=point,
        latency_us=dict(latency_us),
        error=error if error is not None and isfinite(error) else None,
    )


def compare(model: JobModel, tuned: TunedModel, undone: StepLog) -> FinishReport:
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


def _compare(model: JobModel, tuned: TunedModel, undone: StepLog) -> FinishReport:
    with Engines(model.whole, (UNTUNED, TUNED, ONNXRUNTIME), undone.attempt) as engines:
        if tuned.is_large:
            engines.leave_out(UNTUNED)
        elif model.claimed.job.trials == 0:
            # Left out if onnxruntime confirms the numbers: its compilation may take longer than the rest.
            engines.load({TUNED: tuned.library}, (TUNED, ONNXRUNTIME))
            if engines.errors(TUNED).get(ONNXRUNTIME, inf) <= engines.largest_error:
                engines.leave_out(UNTUNED)
        untuned = model.whole.folder / "untuned.so"
        if UNTUNED in engines:  # engines start meanwhile
            compiling = partial(twice, partial(model.whole.compile_untuned, untuned))
            if undone.attempt("compile the untuned model", compiling) is None:
                engines.leave_out(UNTUNED)
        engines.load({UNTUNED: untuned, TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not _computes_the_same(errors, engines, undone):
            engines.leave_out(TUNED)
        if TUNED not in engines:
            model.libraries.forget(tuned.winners)
        _leave_out_onnxruntime(model, engines, undone)
        timed = undone.attempt(TIME, partial(_timed, model, engines)) or FinishReport()
        return timed.model_copy(
            update={f"error_vs_{name}": e if isfinite(e) else None for name, e in errors.items()}
        )


def _timed(model: JobModel, engines: Engines) -> FinishReport:
    with model.alone() as held:
        race = engines.race(held)
    if not race.latency_us:
        return FinishReport()
    return FinishReport(latency_us=race.latency_us, conditions=race.conditions)


def _computes_the_same(errors: Mapping[str, float], engines: Engines, undone: StepLog) -> bool:
    """Whether the tuned model may be shown as a success, by its relative errors against others.

    The untuned model is asked first: it has the same operators in the same order; of a quantised file,
    onnxruntime, which tells how far its own are off. A model whose answers jump with the last digit (a rank,
    a threshold) may fail this with schedules that are all right, so its job ends with them, but without a
    time that would claim a gain.
    """
    order = (UNTUNED, ONNXRUNTIME) if engines.own_error is None else (ONNXRUNTIME, UNTUNED)
    reference, limit = next((name for name in order if name in errors), None), engines.largest_error
    if reference is None:
        undone.leave(CHECK, "there was nothing to compare it with; each schedule was checked alone")
        return True
    if not errors[reference] <= limit:
        undone.leave(CHECK, f"it computes something else than {_told(reference, errors, limit)}", HINT)
        return False
    if not errors.get(ONNXRUNTIME, 0.0) <= limit:
        undone.leave(
            "agree with onnxruntime", f"TVM computes something else: {_told(ONNXRUNTIME, errors, limit)}"
        )
    return True


def _told(name: str, errors: Mapping[str, float], limit: float) -> str:
    return f"{title(name)}: relative error {errors[name]:.1e}, allowed {limit:.0e}; its time is left out"


def _leave_out_onnxruntime(model: JobModel, engines: Engines, undone: StepLog) -> None:
    """It ran on this host: its answers compare with a device's, its times do not."""
    if model.whole.seat is None or ONNXRUNTIME not in engines:
        return
    engines.leave_out(ONNXRUNTIME)
    if all(entry.step != BESIDE_IT for entry in undone.entries):
        undone.leave(BESIDE_IT, ELSEWHERE, BENCH)
