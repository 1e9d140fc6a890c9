"""Choose a job's schedules without trials: time first guesses inside the model (ADR 0053).

First guesses are schedules that an analytic model proposes. Building, checking and timing
three of them per task separately takes a second or two each. Here the model is compiled
with the likeliest guess of each task, checked as a whole and exported; then it is compiled
with the second and third guesses, and kernels are timed inside the model. The times are
stored in a measuring context of their own.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from mallorn.core.errors import InvalidModel, Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import BeforeAfter, FinishReport, ModelContests, ModelLatency
from mallorn.core.values.trial import Trial
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.repositories.measurements import Measurements, NewMeasurement
from mallorn.db.repositories.measuring_contexts import Contexts
from mallorn.db.repositories.schedules import Schedules
from mallorn.db.repositories.tasks import Tasks
from mallorn.workers.device.device_class import no_device_error
from mallorn.workers.finish.build_final_schedules import FinalSchedules
from mallorn.workers.finish.choose_winner import Winner
from mallorn.workers.finish.decide_inside_model import (
    InsideChoice,
    Times,
    alternative_sets,
    fastest_schedules_inside,
    list_swaps,
)
from mallorn.workers.finish.decide_tasks import TaskDecisions
from mallorn.workers.finish.export_directory import ExportFailed, upload_first_export
from mallorn.workers.finish.final_candidates import Contest, inside_timing_settings, select_final_candidates
from mallorn.workers.finish.job_model import JobModel, TunedModel, place_on_device
from mallorn.workers.finish.numeric_check import Checker
from mallorn.workers.finish.step_log import StepLog
from mallorn.workers.measure.tracked_devices import of_class
from mallorn.workers.process.leased_stage import LeasedStage
from mallorn.workers.round.store_referenced_rows import get_or_create_context, store_sketches
from mallorn.workers.subprocesses.errors import ChildError
from mallorn.workers.subprocesses.pending_call import PendingCall
from mallorn.workers.whole_model.compiled_model import ONNXRUNTIME
from mallorn.workers.whole_model.engines import TUNED, Engines

CHOOSE: Final = "choose among default schedules inside the whole model"
FEW: Final = 3  # bursts; few, because a user waits
log = logging.getLogger(__name__)
LIGHT: Final = 0.05  # share of a run; tasks below it in sum keep their first guess
KERNELS_SEC: Final = 0.4
FIRST, JOINED = "guess-1", "joined"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The model compiled with each task's likeliest guess; its outputs agree with
    onnxruntime's."""

    build: TunedModel  # its winners have their times inside the model
    error: float
    largest_error: float  # the largest allowed `error`
    times: Times  # of the build's kernels
    latency_us: dict[str, ModelLatency]  # also of onnxruntime; empty without other guesses


def decide_by_first_guesses(
    stage: LeasedStage, model: JobModel, checker: Checker, step_log: StepLog
) -> TaskDecisions | None:
    """Return each task's first guess that is fastest inside the model, for all at once.

    None if the tasks must be decided one by one: the job has trials or free dimensions, no
    device can time the whole model, or the model with the likeliest guesses does not
    compile or has wrong outputs.
    """
    options, one_shape = stage.options, stage.graph_report.dynamic is None
    decides_inside = options.needs_measurements and options.contests == "inside" and not options.contention
    if stage.job.trials != 0 or not (decides_inside and one_shape):
        return None
    if (placed_model := place_on_device(model)) is None:
        return None
    guesses: list[list[Winner]] = []  # of each task, the likeliest first
    losers: list[Contest] = []
    with step_log.time_step("propose"):
        reading = None if model.libraries else placed_model.whole_model.begin_import()
        context_id = _ensure_context(stage)
        with stage.runtime.database.session() as session:
            tasks = Tasks(session).list_with_workloads(stage.job.id)
        timing = inside_timing_settings(stage)
        for task, workload in tasks:
            stage.lease.raise_if_lost()
            contest = select_final_candidates(stage, task, workload, context_id)
            row = [
                Winner(contest, slot.slot, Trial(slot.candidate, Outcome.OK), trace, None, timing=timing)
                for slot in contest.slots
                if (trace := checker.complete_trace(contest.program, slot))
            ]
            if row:
                guesses.append(row)
            else:
                losers.append(contest)
    if not guesses or (checked := _build_and_check(placed_model, guesses, reading, step_log)) is None:
        return None
    first = checked.build
    with step_log.time_step("export"):
        report_so_far = FinishReport(
            schedule_count=first.compiled.found,
            workload_count=first.compiled.of,
            unscheduled_workloads=first.compiled.missing,
            latency_us=checked.latency_us,
        )
        upload_first_export(
            stage, first.winners, first.directory, report_so_far, first.library, first.compiled
        )
    choosing = partial(choose_fastest_guesses, placed_model, checked, guesses, step_log)
    build, report, error = step_log.attempt(CHOOSE, choosing) or InsideChoice(first, None)
    winners = [replace(winner, max_error=checked.error + error) for winner in build.winners]
    _store_schedules(stage, winners, context_id)
    is_first = build.directory == first.directory  # written before it was timed
    directory = model.write_tuning_records("export", winners) if is_first else build.directory
    if not options.private:
        model.libraries.store_library(winners, build.library, build.compiled)
    build = replace(build, winners=tuple(winners), directory=directory)
    final = FinalSchedules(winners, directory, build, build.compiled, report)
    return TaskDecisions(winners, losers, final=final)


def _build_and_check(
    model: JobModel, guesses: list[list[Winner]], reading: PendingCall[None] | None, step_log: StepLog
) -> CheckedModel | None:
    """Build the model with each task's likeliest guess, compare its outputs with
    onnxruntime's, and time it. None if any of that fails or the outputs are wrong."""
    likeliest = [row[0] for row in guesses]
    try:
        with Engines(model.whole_model, (TUNED, ONNXRUNTIME)) as engines:  # starts during the build
            with step_log.time_step("build"):
                if reading is not None:
                    reading.wait()
                build = model.build(FIRST, likeliest)
            with step_log.time_step("check"):
                engines.load({TUNED: build.library})
                error, largest_error = engines.errors(TUNED).get(ONNXRUNTIME, inf), engines.accepted_error
                if error > largest_error:
                    raise InvalidModel(f"relative error {error:.1e}")
                has_rivals = any(row[1:] for row in guesses)
                with model.lock_host_for_timing() as is_alone:
                    latency_us = {}
                    if has_rivals and model.whole_model.device_pool is None:
                        latency_us = engines.latencies(FEW)
                    engines.drop_engine(ONNXRUNTIME)
                    times = engines.kernel_times(KERNELS_SEC)[TUNED]
    except (ChildError, ExportFailed, InvalidModel, Unavailable) as failure:
        log.warning("first guesses are decided task by task: %s", failure.headline)
        if not isinstance(failure, Unavailable):
            model.libraries.remove_library(likeliest)
        return None
    build = replace(build, winners=tuple(add_inside_times(build.winners, times, is_alone)))
    return CheckedModel(build, error, largest_error, times, latency_us)


def _ensure_context(stage: LeasedStage) -> int:
    """Return the id of the measuring context for times inside the model; create it if new.
    It belongs to a device of this host, if there is one. Raises NoDevice if no device has
    the job's class."""
    devices = of_class(stage.runtime.fleet.devices(stage.target), stage.device_class)
    if not devices:
        raise no_device_error(stage.device_class)
    endpoints = [device.endpoint for device in devices]
    local_endpoints = [endpoint for endpoint in endpoints if endpoint.host_id == host_id()]
    with stage.runtime.database.transaction() as session:
        endpoint = [*local_endpoints, *endpoints][0]
        context = get_or_create_context(session, stage.job.target_id, stage.options, endpoint)
        return Contexts(session).ensure_timed_as(context, inside_timing_settings(stage)).id


def _store_schedules(stage: LeasedStage, winners: Sequence[Winner], context_id: int) -> None:
    job, winners = stage.job, [winner for winner in winners if winner.latency_us is not None]
    with stage.runtime.database.transaction() as session:
        slots = [winner.contest.slots[winner.slot] for winner in winners]
        sketches = store_sketches(session, [slot.sketch for slot in slots])
        for winner, slot in zip(winners, slots, strict=True):
            trial = replace(winner.trial, origin=f"inside:{winner.means}")
            row = NewMeasurement(winner.slot, trial, sketches[slot.candidate.sketch], context_id)
            (measurement_id,) = Measurements(session).add_finish(
                job.id, stage.hold.token, winner.contest.workload.id, job.target_id, [row]
            )
            Schedules(session).promote(winner.schedule(job, context_id, measurement_id))


def choose_fastest_guesses(
    model: JobModel, checked: CheckedModel, guesses: Sequence[Sequence[Winner]], step_log: StepLog
) -> InsideChoice:
    """Build the model with each task's fastest guess and return that build if it is faster
    than the checked one; otherwise return the checked one. Tasks that take very little of
    the model's time keep their first guess."""
    started_sec = time.monotonic()
    first = checked.build
    # Guesses for the lightest tasks gain nothing.
    heavy_tasks, left_us = set[str](), sum(checked.times.values())
    light_us = left_us * LIGHT
    for name, us in sorted(checked.times.items(), key=lambda item: -item[1]):
        if left_us <= light_us:
            break
        heavy_tasks.add(name)
        left_us -= us
    rivals = [row[1:] if row[0].contest.task.name in heavy_tasks else [] for row in guesses]
    other_sets = [] if first.is_large else alternative_sets(first.winners, rivals)
    if not other_sets:
        return InsideChoice(first, None)
    with model.stage.runtime.database.transaction() as session:
        Jobs(session).set_reason(model.stage.job.id, "default schedules are timed inside the whole model")
    names = [f"guess-{n}" for n, _ in enumerate(other_sets, 2)]
    with Engines(model.whole_model, [FIRST, *names]) as engines:  # they start during the builds
        with step_log.time_step("build"):
            builds = [first, *map(model.build, names, other_sets)]
        with step_log.time_step("time"):
            engines.load({build.directory.name: build.library for build in builds})
            with model.lock_host_for_timing() as is_alone:
                times = list(engines.kernel_times(KERNELS_SEC).values())
    sets = [
        add_inside_times(build.winners, task_us, is_alone)
        for build, task_us in zip(builds, times, strict=True)
    ]
    fastest = fastest_schedules_inside(sets, times)
    swaps = list_swaps(first.winners, fastest, sets, times)
    build, latency_us, error = first, None, 0.0
    if swaps:
        build, latency_us, error = _faster_build(model, checked, fastest, step_log)
    seconds = round(time.monotonic() - started_sec, 1)
    report = ModelContests(
        tasks=swaps, latency_us=latency_us, uses_replacements=build is not first, seconds=seconds
    )
    return InsideChoice(build, report, error)


def _faster_build(
    model: JobModel, checked: CheckedModel, winners: Sequence[Winner], step_log: StepLog
) -> tuple[TunedModel, BeforeAfter | None, float]:
    """Build the model with `winners`. Return the faster of this and the checked build, and
    both latencies. The third value is the error of the returned build's outputs, relative
    to the checked build; a build with too large an error is neither timed nor returned."""
    first = checked.build
    with step_log.time_step("build"):
        joined_build = model.build(JOINED, winners)
    libraries = {JOINED: joined_build.library, FIRST: first.library}
    with step_log.time_step("time"), Engines(model.whole_model, libraries) as engines:
        engines.load(libraries)
        if (error := engines.errors(JOINED).get(FIRST, inf)) > checked.largest_error:
            return first, None, 0.0
        with model.lock_host_for_timing():
            latency_us = {name: latency.median for name, latency in engines.latencies().items()}
    before_after = BeforeAfter(before=latency_us[FIRST], after=latency_us[JOINED])
    if latency_us[JOINED] < latency_us[FIRST]:
        return joined_build, before_after, error
    return first, before_after, 0.0


def add_inside_times(winners: Sequence[Winner], times: Times, is_alone: bool) -> list[Winner]:
    """Return the winners with their times per call inside the model, as far as measured.
    The times are upper bounds unless `is_alone`: no other work of this service ran
    meanwhile."""
    with_times = []
    for winner in winners:
        task = winner.contest.task
        call_us = times.get(task.name, 0.0) / task.weight
        run_us = (call_us,) if call_us > 0 else ()
        disturbed = None if is_alone else 1.0
        trial = replace(winner.trial, latency_us=None, run_us=run_us, disturbed=disturbed)
        with_times.append(replace(winner, trial=trial))
    return with_times
