"""Choose a job's first guesses inside the whole model, for all tasks at once (ADR 0053).

For jobs without trials.

Building, checking and timing three guesses per task separately takes a second or two each.
Here the model is compiled with the likeliest guess of each task, checked as a whole and
exported; then it is compiled with the second and third guesses, and kernels are timed inside
the model. The times are stored in a measuring context of their own.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from db.repositories.jobs import Jobs
from db.repositories.measurements import Measurements, NewMeasurement
from db.repositories.measuring_contexts import Contexts
from db.repositories.schedules import Schedules
from db.repositories.tasks import Tasks
from mallorn.core.errors import InvalidModel, Unavailable
from mallorn.core.host_id import host_id
from mallorn.core.outcomes import Outcome
from mallorn.core.values.finish_report import BeforeAfter, FinishReport, InsideTheModel, ModelLatency
from mallorn.core.values.trial import Trial
from workers.device.device_class import no_device_error
from workers.finish.contenders import Contest, contest_of, timing_inside
from workers.finish.decide_inside_model import InsideChoice, Times, choose, fields, swapped
from workers.finish.decide_tasks import Decided
from workers.finish.export_directory import ExportFailed, export_first
from workers.finish.final_schedules import FinalSchedules, covered
from workers.finish.job_model import JobModel, TunedModel, where_it_runs
from workers.finish.numeric_checker import Checker
from workers.finish.step_log import StepLog
from workers.finish.winners import Winner
from workers.measure.tracked_devices import of_class
from workers.process.leased_stage import StageContext
from workers.round.store_referenced_rows import context_of, store_sketches
from workers.subprocesses.errors import ChildError
from workers.subprocesses.pending_call import PendingCall
from workers.whole_model.compiled_model import ONNXRUNTIME
from workers.whole_model.engines import TUNED, Engines

CHOOSE: Final = "choose among first guesses inside the whole model"
FEW: Final = 3  # bursts; few, because a user waits
log = logging.getLogger(__name__)
SAYS: Final = "first guesses are timed inside the whole model"
LIGHT: Final = 0.05  # share of a run: the lightest tasks up to it keep their likeliest guess
KERNELS_SEC: Final = 0.4
FIRST, JOINED = "guess-1", "joined"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The model with the likeliest guesses, whose error against onnxruntime is allowed."""

    built: TunedModel  # its winners have the times below
    error: float
    allowed: float
    times: Times  # of its kernels
    latency_us: dict[str, ModelLatency]  # and onnxruntime's; empty if no guesses are left


def guess_inside(
    claimed: StageContext, model: JobModel, check: Checker, undone: StepLog
) -> tuple[Decided, FinalSchedules] | None:
    """Return the guesses that are fastest inside the model; None to decide each task separately.

    Returns None for a job with trials or a range of shapes, if no device can time the whole
    model, and if the model with the likeliest guesses does not compile or has wrong outputs.
    """
    options, one_shape = claimed.options, claimed.graph.dynamic is None
    decides_inside = options.searches and options.contests == "inside" and not options.beside_others
    if claimed.job.trials != 0 or not (decides_inside and one_shape):
        return None
    if (placed := where_it_runs(model)) is None:
        return None
    with undone.step("propose"):
        reading = None if model.libraries else placed.whole.begin_reading()
        context_id = _context(claimed)
        guesses, losers = _guesses(claimed, check, context_id)
    if not guesses or (checked := _checked(placed, guesses, reading, undone)) is None:
        return None
    first = checked.built
    with undone.step("export"):
        report_so_far = covered(first).model_copy(update={"latency_us": checked.latency_us})
        export_first(claimed, first.winners, first.directory, report_so_far)
    chosen, report, error = undone.attempt(
        CHOOSE, partial(choose_guesses, placed, checked, guesses, undone)
    ) or InsideChoice(first, None)
    winners = [replace(each, max_error=checked.error + error) for each in chosen.winners]
    _promote(claimed, winners, context_id)
    is_first = chosen.directory == first.directory  # written before it was timed
    directory = model.write("export", winners) if is_first else chosen.directory
    if not options.is_private:
        model.libraries.put(winners, chosen.library, chosen.compiled)
    built = replace(chosen, winners=tuple(winners), directory=directory)
    handout = FinalSchedules(winners, directory, built, covered(built, report))
    return Decided(winners, losers, FinishReport()), handout


def _guesses(
    claimed: StageContext, check: Checker, context_id: int
) -> tuple[list[list[Winner]], list[Contest]]:
    """Return the guesses of each task, the likeliest first, and the contests without a guess."""
    with claimed.runtime.database.session() as session:
        tasks = Tasks(session).programs(claimed.job.id)
    timing = timing_inside(claimed)
    found: list[list[Winner]] = []
    losers: list[Contest] = []
    for task, workload in tasks:
        claimed.lease.check()
        contest = contest_of(claimed, task, workload, context_id)
        row = [
            Winner(contest, slot.slot, Trial(slot.candidate, Outcome.OK), trace, None, timing=timing)
            for slot in contest.slots
            if (trace := check.trace(contest.program, slot))
        ]
        if row:
            found.append(row)
        else:
            losers.append(contest)
    return found, losers


def _checked(
    model: JobModel, guesses: list[list[Winner]], reading: PendingCall[None] | None, step_log: StepLog
) -> CheckedModel | None:
    """Build, check and time the model; None if it fails or onnxruntime does not confirm it."""
    try:
        with Engines(model.whole, (TUNED, ONNXRUNTIME)) as engines:  # starts during the build
            with step_log.step("build"):
                if reading is not None:
                    reading.wait()
                built = model.build(FIRST, [row[0] for row in guesses])
            with step_log.step("check"):
                engines.load({TUNED: built.library})
                error, allowed = engines.errors(TUNED).get(ONNXRUNTIME, inf), engines.largest_error
                if error > allowed:
                    raise InvalidModel(f"relative error {error:.1e}")
                goes_on = model.whole.seat is None and any(row[1:] for row in guesses)
                with model.alone() as alone:
                    latency_us = engines.latencies(FEW) if goes_on else {}
                    engines.leave_out(ONNXRUNTIME)
                    times = engines.kernel_times(KERNELS_SEC)[TUNED]
    except (ChildError, ExportFailed, InvalidModel, Unavailable) as failed:
        log.warning("first guesses are decided task by task: %s", failed.headline)
        if not isinstance(failed, Unavailable):
            model.libraries.forget([row[0] for row in guesses])
        return None
    built = replace(built, winners=tuple(timed_inside(built.winners, times, alone)))
    return CheckedModel(built, error, allowed, times, latency_us)


def _context(claimed: StageContext) -> int:
    """Return the context id for times inside the model, preferring a device of this host.

    Raises NoDevice if the job's device class has no device.
    """
    devices = of_class(claimed.runtime.fleet.devices(claimed.target), claimed.like)
    if not devices:
        raise no_device_error(claimed.like)
    endpoint = next(
        (each.endpoint for each in devices if each.endpoint.host_id == host_id()), devices[0].endpoint
    )
    with claimed.runtime.database.transaction() as session:
        alone = context_of(session, claimed.job.target_id, claimed.options, endpoint)
        return Contexts(session).ensure_timed_as(alone, timing_inside(claimed)).id


def _promote(claimed: StageContext, winners: Sequence[Winner], context_id: int) -> None:
    """Store and promote the schedules that were timed inside the model."""
    job, winners = claimed.job, [winner for winner in winners if winner.latency_us is not None]
    with claimed.runtime.database.transaction() as session:
        slots = [winner.contest.slots[winner.slot] for winner in winners]
        sketches = store_sketches(session, [slot.sketch for slot in slots])
        for winner, slot in zip(winners, slots, strict=True):
            trial = replace(winner.trial, origin=f"inside:{winner.means}")
            row = NewMeasurement(winner.slot, trial, sketches[slot.candidate.sketch], context_id)
            owner = job.id, claimed.hold.token, winner.contest.workload.id, job.target_id
            (measurement_id,) = Measurements(session).add_finish(*owner, [row])
            Schedules(session).promote(winner.schedule(job, context_id, measurement_id))


def choose_guesses(
    model: JobModel, checked: CheckedModel, guesses: Sequence[Sequence[Winner]], undone: StepLog
) -> InsideChoice:
    """Return a build with the fastest guess of each heavy task, if it beats the first build."""
    started = time.monotonic()
    first = checked.built
    heavy = _heavy(checked.times)
    rivals = [row[1:] if row[0].contest.task.name in heavy else [] for row in guesses]
    others = [] if first.is_large else fields(first.winners, rivals)
    if not others:
        return InsideChoice(first, None)
    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).say(model.claimed.job.id, SAYS)
    names = [f"guess-{n}" for n, _ in enumerate(others, 2)]
    with Engines(model.whole, [FIRST, *names]) as engines:  # they start during the builds
        with undone.step("build"):
            builds = [first, *map(model.build, names, others)]
        with undone.step("time"):
            engines.load({build.directory.name: build.library for build in builds})
            with model.alone() as alone:
                times = list(engines.kernel_times(KERNELS_SEC).values())
    pairs = zip(builds, times, strict=True)
    chosen = choose([timed_inside(build.winners, task_us, alone) for build, task_us in pairs], times)
    swaps = swapped(first.winners, chosen, [build.winners for build in builds], times)
    build, latency_us, error = first, None, 0.0
    if swaps:
        build, latency_us, error = _faster(model, first, chosen, checked.allowed, undone)
    seconds = round(time.monotonic() - started, 1)
    report = InsideTheModel(tasks=swaps, latency_us=latency_us, taken=build is not first, seconds=seconds)
    return InsideChoice(build, report, error)


def _heavy(times: Times) -> set[str]:
    """Return the tasks that take nearly all of a run; guesses for the rest gain nothing."""
    total_us, found = sum(times.values()), set[str]()
    left_us = total_us
    for name, us in sorted(times.items(), key=lambda each: -each[1]):
        if left_us <= total_us * LIGHT:
            break
        found.add(name)
        left_us -= us
    return found


def _faster(
    model: JobModel, first: TunedModel, chosen: Sequence[Winner], allowed: float, step_log: StepLog
) -> tuple[TunedModel, BeforeAfter | None, float]:
    """Return the faster build, both latencies, and its output error against `first`.

    If the build with the chosen guesses has wrong outputs, it is not timed and `first` is
    returned.
    """
    with step_log.step("build"):
        joined = model.build(JOINED, chosen)
    libraries = {JOINED: joined.library, FIRST: first.library}
    with step_log.step("time"), Engines(model.whole, libraries) as engines:
        engines.load(libraries)
        if (error := engines.errors(JOINED).get(FIRST, inf)) > allowed:
            return first, None, 0.0
        with model.alone():
            latency_us = {name: each.median for name, each in engines.latencies().items()}
    timed = BeforeAfter(before=latency_us[FIRST], after=latency_us[JOINED])
    return (joined, timed, error) if latency_us[JOINED] < latency_us[FIRST] else (first, timed, 0.0)


def timed_inside(winners: Sequence[Winner], seen: Times, alone: bool) -> list[Winner]:
    """Return winners with the time of one call inside the model, if its kernel was observed.

    If other work of this service ran meanwhile (`alone` is False), times are upper bounds.
    """
    found, disturbed = [], None if alone else 1.0
    for winner in winners:
        task = winner.contest.task
        call_us = seen.get(task.name, 0.0) / task.weight
        run_us = (call_us,) if call_us > 0 else ()
        trial = replace(winner.trial, latency_us=None, run_us=run_us, disturbed=disturbed)
        found.append(replace(winner, trial=trial))
    return found
