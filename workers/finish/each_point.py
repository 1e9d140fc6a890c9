"""A model for a range of shapes at each of its points, beside onnxruntime.

TVM's default build is left out: at large sizes one run of it may take minutes.
"""

from dataclasses import replace
from functools import partial
from math import isfinite

from mallorn.core.values.dynamic import Dynamic
from mallorn.core.values.report import Conditions, FinishReport, PointTimes
from workers.finish.agreement import check_numbers
from workers.finish.elsewhere import leave_out_onnxruntime
from workers.finish.job_model import JobModel, TunedModel
from workers.finish.undone import Undone
from workers.racing.engines import TUNED, Engines
from workers.racing.whole_model import ONNXRUNTIME

BESIDE = "Other work of this service went on while the points were timed."


def compare_points(model: JobModel, tuned: TunedModel, undone: Undone, dynamic: Dynamic) -> FinishReport:
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
    model: JobModel, tuned: TunedModel, undone: Undone, dynamic: Dynamic, point: dict[str, int]
) -> PointTimes:
    model.claimed.lease.check()
    point = _with_lengths(dynamic, point)
    name = " ".join(f"{dim}={size}" for dim, size in point.items())
    folder = model.whole.folder / name.replace(" ", "_")
    folder.mkdir(exist_ok=True)
    whole = replace(model.whole, input_shapes=dynamic.shapes(point), folder=folder)
    with Engines(whole, (TUNED, ONNXRUNTIME), undone.attempt) as engines:
        engines.load({TUNED: tuned.library})
        errors = engines.errors(TUNED)
        if TUNED in engines and not check_numbers(errors, model.whole.largest_error, undone):
            engines.leave_out(TUNED)
        leave_out_onnxruntime(model, engines, undone)
        latency_us = undone.attempt(f"time the model at {name}", partial(engines.latencies)) or {}
    error = errors.get(ONNXRUNTIME)
    return PointTimes(
        sizes=point,
        latency_us=dict(latency_us),
        error=error if error is not None and isfinite(error) else None,
    )


def _with_lengths(dynamic: Dynamic, point: dict[str, int]) -> dict[str, int]:
    """The point with what grows: half of it behind the smallest, as steps are; nothing yet for others."""
    step = point == dynamic.points[0]
    return point | {name: dynamic.ranges[name][1] // 2 * step for name in dynamic.grows}
