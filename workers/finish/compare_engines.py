"""Compare the outputs and times of the tuned model, the untuned build and onnxruntime.

A model that was tuned for a range of shapes is compared with onnxruntime only, since one
untuned run at large sizes may take minutes.
"""

from collections.abc import Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from typing import Final

from mallorn.core.values.dynamic_shapes import Dynamic
from mallorn.core.values.finish_report import Conditions, PointTimes
from mallorn.workers.finish.job_model import BENCH, ELSEWHERE, JobModel, TunedModel, place_or_fail
from mallorn.workers.finish.step_log import ReportDraft, StepLog
from mallorn.workers.interfaces.whole_model_engine import WrongImport
from mallorn.workers.subprocesses.errors import retry_after_crash
from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME, WholeModel
from mallorn.workers.whole_model.engines import CONSTANT_OUTPUT, TUNED, UNTUNED, WITH_INPUTS, Engines, title
from mallorn.workers.whole_model.interleaved_timing import FairRace

BESIDE = "Other work of this service went on while the points were timed."
BESIDE_IT: Final = "time onnxruntime beside it"
TIME: Final = "time the whole model"
CHECK: Final = "check the tuned model"
HINT: Final = "mallorn compile MODEL --schedules DIR -o model.so --check"


def compare_and_time_engines(
    model: JobModel, tuned_model: TunedModel, step_log: StepLog, report: ReportDraft
) -> bool:
    """Time the tuned model and the other engines, and compare their outputs; set the
    latencies and errors in `report`. Log failed steps. A tuned model with wrong outputs is
    not timed. Return whether the tuned model ran and its outputs are correct."""
    placed_model = step_log.attempt(TIME, partial(place_or_fail, model))
    if placed_model is None:
        return False
    dynamic = model.stage.graph_report.dynamic
    compare = (
        partial(_compare_model, placed_model, tuned_model, step_log, report)
        if dynamic is None
        else partial(_compare_points, placed_model, tuned_model, step_log, report, dynamic)
    )
    return bool(step_log.attempt(TIME, compare))


def _compare_points(
    model: JobModel, tuned_model: TunedModel, step_log: StepLog, report: ReportDraft, dynamic: Dynamic
) -> bool:
    """Compare the engines at each size for which the model was tuned; skip wrong outputs.
    Return whether the outputs are correct at every size."""
    points, correct_count = [], 0
    with model.lock_host_for_timing() as is_alone:
        for point in dynamic.points:
            model.stage.lease.raise_if_lost()
            # Dimensions that grow (caches) are half full at the smallest point, else empty.
            is_step = point == dynamic.points[0]
            sizes = point | {dim: dynamic.ranges[dim][1] // 2 * is_step for dim in dynamic.growing_dimensions}
            size_text = " ".join(f"{dim}={size}" for dim, size in sizes.items())
            whole_model = replace(model.whole_model, input_shapes=dynamic.shapes(sizes))
            with Engines(whole_model, (TUNED, ONNXRUNTIME), step_log.attempt) as engines:
                engines.load({TUNED: tuned_model.library})
                errors = _check_outputs(model, engines, step_log)
                correct_count += TUNED in engines
                latency_us = step_log.attempt(f"time the model at {size_text}", engines.latencies) or {}
            error = _none_if_infinite(errors.get(ONNXRUNTIME, inf))
            points.append(PointTimes(sizes=sizes, latency_us=dict(latency_us), error=error))
    report.points, report.latency_us = points, points[-1].latency_us
    errors_of_points = [point.error for point in points if point.error is not None]
    report.error_vs_onnxruntime = max(errors_of_points, default=None)
    report.conditions = Conditions(steady=is_alone, note="" if is_alone else BESIDE)
    return correct_count == len(points)


def check_over_range(model: JobModel, tuned_model: TunedModel, step_log: StepLog, dynamic: Dynamic) -> bool:
    """Return whether the tuned model computes correctly at each tuned size of a range."""
    placed_model = place_or_fail(model)
    for point in dynamic.points:
        model.stage.lease.raise_if_lost()
        sizes = point | {dim: dynamic.ranges[dim][1] // 2 for dim in dynamic.growing_dimensions}
        whole_model = replace(placed_model.whole_model, input_shapes=dynamic.shapes(sizes))
        with Engines(whole_model, (TUNED, ONNXRUNTIME), step_log.attempt) as engines:
            engines.load({TUNED: tuned_model.library})
            _check_outputs(placed_model, engines, step_log)
            if TUNED not in engines:
                return False
    return True


def _compare_model(model: JobModel, tuned_model: TunedModel, step_log: StepLog, report: ReportDraft) -> bool:
    with Engines(model.whole_model, (UNTUNED, TUNED, ONNXRUNTIME), step_log.attempt) as engines:
        if tuned_model.is_large:
            engines.drop_engine(UNTUNED)
        elif model.stage.job.trials == 0:
            # Skip the slow untuned build if onnxruntime confirms the outputs.
            engines.load({TUNED: tuned_model.library}, (TUNED, ONNXRUNTIME))
            if engines.errors(TUNED).get(ONNXRUNTIME, inf) <= engines.accepted_error:
                engines.drop_engine(UNTUNED)
        untuned = model.whole_model.folder / "untuned.so"
        if UNTUNED in engines:  # the engines start while it compiles
            compiling = partial(retry_after_crash, partial(model.whole_model.compile_untuned, untuned))
            if step_log.attempt("compile the untuned model", compiling) is None:
                engines.drop_engine(UNTUNED)
        engines.load({UNTUNED: untuned, TUNED: tuned_model.library})
        errors = _check_outputs(model, engines, step_log)
        for index in engines.find_constant_outputs():
            name = tuned_model.compiled.outputs[index].name
            step_log.log_skipped_step(f"check the output {name!r}", CONSTANT_OUTPUT, WITH_INPUTS)
        if not (is_correct := TUNED in engines):
            model.libraries.remove_library(tuned_model.winners)
        race = step_log.attempt(TIME, partial(_time_engines, model, engines))
    if (whole := model.whole_model.whole_file()) is not None:
        step = "time the whole file in onnxruntime"
        report.whole_file_us = step_log.attempt(step, partial(_time_file, model, whole))
    if race is not None and race.latency_us:
        report.latency_us, report.conditions = dict(race.latency_us), race.conditions
    if UNTUNED in errors:
        report.error_vs_untuned = _none_if_infinite(errors[UNTUNED])
    if ONNXRUNTIME in errors:
        report.error_vs_onnxruntime = _none_if_infinite(errors[ONNXRUNTIME])
    return is_correct


def _time_file(model: JobModel, whole: WholeModel) -> float:
    """Return onnxruntime's median latency with the file of which the model is a part."""
    with Engines(whole, (ONNXRUNTIME,)) as engines:
        engines.load({})
        with model.lock_host_for_timing():
            return engines.latencies()[ONNXRUNTIME].median


def _time_engines(model: JobModel, engines: Engines) -> FairRace:
    with model.lock_host_for_timing() as is_alone:
        return engines.time_undisturbed(is_alone)


def _none_if_infinite(error: float) -> float | None:
    return error if isfinite(error) else None


def _check_outputs(model: JobModel, engines: Engines, step_log: StepLog) -> dict[str, float]:
    """Return the tuned model's error against each other engine; drop engines not to time: a
    tuned model with wrong outputs, and onnxruntime if that model is on another host."""
    errors = engines.errors(TUNED)
    limit = engines.accepted_error
    is_like_untuned = UNTUNED in engines and engines.errors(UNTUNED).get(ONNXRUNTIME, inf) <= limit
    # Before a schedule is suspected. Two quantised models may round a number in other ways.
    if not errors.get(ONNXRUNTIME, 0.0) <= limit and not (is_like_untuned and engines.own_error is None):
        bisect = partial(model.judge_import, errors[ONNXRUNTIME], engines.own_error)
        difference = None
        # What agrees without schedules is imported right, whatever one node does alone.
        with suppress(WrongImport) if is_like_untuned else nullcontext():
            difference = step_log.attempt("bisect the import", bisect)
        if difference is not None:
            step_log.log_skipped_step("agree with onnxruntime", difference.description)
            return errors
    if TUNED in engines and not _are_outputs_correct(errors, engines, step_log):
        engines.drop_engine(TUNED)
    if model.whole_model.device_pool is not None and ONNXRUNTIME in engines:
        engines.drop_engine(ONNXRUNTIME)
        if all(entry.step != BESIDE_IT for entry in step_log.entries):
            step_log.log_skipped_step(BESIDE_IT, ELSEWHERE, BENCH)
    return errors


def _are_outputs_correct(errors: Mapping[str, float], engines: Engines, step_log: StepLog) -> bool:
    """Return whether the tuned model's outputs are correct; if not, log the reason.

    The reference is the untuned model, which has the same operators in the same order; for
    a quantised file it is onnxruntime, whose own error is known. A model with discontinuous
    outputs (a rank, a threshold) may fail although its schedules are correct, so the job
    exports them all the same, but reports no time.
    """
    order = (UNTUNED, ONNXRUNTIME) if engines.own_error is None else (ONNXRUNTIME, UNTUNED)
    reference, limit = next((name for name in order if name in errors), None), engines.accepted_error
    if reference is None:
        step_log.log_skipped_step(
            CHECK, "there was nothing to compare it with; each schedule was checked alone"
        )
        return True
    if not errors[reference] <= limit:
        words = _error_text(reference, errors, engines)
        step_log.log_skipped_step(CHECK, f"it computes something else than {words}", HINT)
        return False
    if not errors.get(ONNXRUNTIME, 0.0) <= limit:
        step_log.log_skipped_step(
            "agree with onnxruntime",
            f"TVM computes something else: {_error_text(ONNXRUNTIME, errors, engines)}",
        )
    return True


def _error_text(name: str, errors: Mapping[str, float], engines: Engines) -> str:
    values = f"relative error {errors[name]:.1e}, allowed {engines.accepted_error:.0e}"
    note = engines.overflow_note(errors[name])
    return f"{title(name)}: {values}; its time is left out{note}"
