"""Compare the outputs and times of the tuned model, the untuned build and onnxruntime.

For a range of shapes the untuned build is left out, since one run at large sizes may take
minutes.
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
from workers.subprocesses.errors import twice
from workers.whole_model.compiled_model import ONNXRUNTIME
from workers.whole_model.engines import TUNED, UNTUNED, Engines, title

BESIDE = "Other work of this service went on while the points were timed."
BESIDE_IT: Final = "time onnxruntime beside it"
TIME: Final = "time the whole model"
CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def compare_points(model: JobModel, tuned: TunedModel, undone: StepLog, dynamic: Dynamic) -> FinishReport:
    """Return the report section on a range's points; points with wrong outputs are not timed."""
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
    model: JobModel, tuned: TunedModel, step_log: StepLog, dynamic: Dynamic, point: dict[str, int]
) -> PointTimes:
    model.claimed.lease.check()
    # Dimensions that grow (caches) are half full at the smallest point, and empty at the
    # others.
    is_step = point == dynamic.points[0]
    point = point | {name: dynamic.ranges[name][1] // 2 * is_step for name in dynamic.grows}
    name = " ".join(f"{dim}={size}" for dim, size in point.items())
    whole_model = replace(model.whole, input_shapes=dynamic.shapes(point))
    with Engines(whole_model, (TUNED, ONNXRUNTIME), step_log.attempt) as engines:
        engines.load({TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not _computes_the_same(errors, engines, step_log):
            engines.leave_out(TUNED)
        _leave_out_onnxruntime(model, engines, step_log)
        latency_us = step_log.attempt(f"time the model at {name}", engines.latencies) or {}
    error = errors.get(ONNXRUNTIME)
    return PointTimes(
        sizes=point,
        latency_us=dict(latency_us),
        error=error if error is not None and isfinite(error) else None,
    )


def compare(model: JobModel, tuned: TunedModel, undone: StepLog) -> FinishReport:
    """Return the report section on the comparison; log steps that cannot be done in `undone`.

    A tuned model with wrong outputs is not timed.
    """
    placed_model = undone.attempt(TIME, partial(placed, model))
    if placed_model is None:
        return FinishReport()
    dynamic = model.claimed.graph.dynamic
    found = undone.attempt(
        TIME,
        partial(compare_points, placed_model, tuned, undone, dynamic)
        if dynamic is not None
        else partial(_compare, placed_model, tuned, undone),
    )
    return found or FinishReport()


def _compare(model: JobModel, tuned: TunedModel, step_log: StepLog) -> FinishReport:
    with Engines(model.whole, (UNTUNED, TUNED, ONNXRUNTIME), step_log.attempt) as engines:
        if tuned.is_large:
            engines.leave_out(UNTUNED)
        elif model.claimed.job.trials == 0:
            # Skip the untuned build if onnxruntime confirms the outputs: compiling it may take
            # longer than everything else.
            engines.load({TUNED: tuned.library}, (TUNED, ONNXRUNTIME))
            if engines.errors(TUNED).get(ONNXRUNTIME, inf) <= engines.largest_error:
                engines.leave_out(UNTUNED)
        untuned = model.whole.folder / "untuned.so"
        if UNTUNED in engines:  # the engines start while it compiles
            compiling = partial(twice, partial(model.whole.compile_untuned, untuned))
            if step_log.attempt("compile the untuned model", compiling) is None:
                engines.leave_out(UNTUNED)
        engines.load({UNTUNED: untuned, TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not _computes_the_same(errors, engines, step_log):
            engines.leave_out(TUNED)
        if TUNED not in engines:
            model.libraries.forget(tuned.winners)
        _leave_out_onnxruntime(model, engines, step_log)
        timed = step_log.attempt(TIME, partial(_timed, model, engines)) or FinishReport()
        return timed.model_copy(
            update={f"error_vs_{name}": e if isfinite(e) else None for name, e in errors.items()}
        )


def _timed(model: JobModel, engines: Engines) -> FinishReport:
    with model.alone() as held:
        race = engines.race(held)
    if not race.latency_us:
        return FinishReport()
    return FinishReport(latency_us=race.latency_us, conditions=race.conditions)


def _computes_the_same(errors: Mapping[str, float], engines: Engines, step_log: StepLog) -> bool:
    """Return whether the tuned model's error against the reference is within the limit.

    The reference is the untuned model, which has the same operators in the same order; for a
    quantised file it is onnxruntime, whose own error is known. A model with discontinuous
    outputs (a rank, a threshold) may fail although its schedules are correct, so the job still
    exports them, but reports no time.
    """
    order = (UNTUNED, ONNXRUNTIME) if engines.own_error is None else (ONNXRUNTIME, UNTUNED)
    reference, limit = next((name for name in order if name in errors), None), engines.largest_error
    if reference is None:
        step_log.leave(CHECK, "there was nothing to compare it with; each schedule was checked alone")
        return True
    if not errors[reference] <= limit:
        step_log.leave(
            CHECK, f"it computes something else than {_error_text(reference, errors, limit)}", HINT
        )
        return False
    if not errors.get(ONNXRUNTIME, 0.0) <= limit:
        step_log.leave(
            "agree with onnxruntime",
            f"TVM computes something else: {_error_text(ONNXRUNTIME, errors, limit)}",
        )
    return True


def _error_text(name: str, errors: Mapping[str, float], limit: float) -> str:
    return f"{title(name)}: relative error {errors[name]:.1e}, allowed {limit:.0e}; its time is left out"


def _leave_out_onnxruntime(model: JobModel, engines: Engines, step_log: StepLog) -> None:
    """Do not time onnxruntime on this host if the model runs on a device of another host."""
    if model.whole.seat is None or ONNXRUNTIME not in engines:
        return
    engines.leave_out(ONNXRUNTIME)
    if all(entry.step != BESIDE_IT for entry in step_log.entries):
        step_log.leave(BESIDE_IT, ELSEWHERE, BENCH)
