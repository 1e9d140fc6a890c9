"""Which first guess of each task is fastest inside the model."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from db.repositories.jobs import Jobs
from mallorn.core.values.finish_report import BeforeAfter, InsideTheModel, ModelLatency
from workers.finish.decide_inside_model import InsideChoice, Times, choose, fields, swapped
from workers.finish.job_model import JobModel, TunedModel
from workers.finish.step_log import StepLog
from workers.finish.winners import Winner
from workers.whole_model.engines import Engines

SAYS: Final = "first guesses are timed inside the whole model"
LIGHT: Final = 0.05  # of a run, that tasks take which keep their likeliest guess
KERNELS_SEC: Final = 0.4
FIRST, JOINED = "guess-1", "joined"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The model with the likeliest guesses, as far from onnxruntime's answers as it may be."""

    built: TunedModel  # its winners have the times below
    error: float
    allowed: float
    times: Times  # of its kernels
    latency_us: dict[str, ModelLatency]  # beside onnxruntime; empty where only the device runs it


def choose_guesses(
    model: JobModel, checked: CheckedModel, guesses: Sequence[Sequence[Winner]], undone: StepLog
) -> InsideChoice:
    """The build with what is fastest of every task that matters, if that is faster as a whole."""
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
    with Engines(model.whole, [FIRST, *names]) as engines:  # they start meanwhile
        with undone.step("build"):
            builds = [first, *map(model.build, names, others)]
        with undone.step("time"):
            engines.load({build.directory.name: build.library for build in builds})
            with model.alone() as alone:
                times = list(engines.kernel_times(KERNELS_SEC).values())
    pairs = zip(builds, times, strict=True)
    chosen = choose([timed_inside(build.winners, seen, alone) for build, seen in pairs], times)
    swaps = swapped(first.winners, chosen, [build.winners for build in builds], times)
    build, latency_us, error = first, None, 0.0
    if swaps:
        build, latency_us, error = _faster(model, first, chosen, checked.allowed, undone)
    seconds = round(time.monotonic() - started, 1)
    report = InsideTheModel(tasks=swaps, latency_us=latency_us, taken=build is not first, seconds=seconds)
    return InsideChoice(build, report, error)


def _heavy(times: Times) -> set[str]:
    """The tasks that take nearly all of a run: another guess for one of the rest brings nothing."""
    total_us, found = sum(times.values()), set[str]()
    left_us = total_us
    for name, us in sorted(times.items(), key=lambda each: -each[1]):
        if left_us <= total_us * LIGHT:
            break
        found.add(name)
        left_us -= us
    return found


def _faster(
    model: JobModel, first: TunedModel, chosen: Sequence[Winner], allowed: float, undone: StepLog
) -> tuple[TunedModel, BeforeAfter | None, float]:
    """Return the faster build, both latencies, and how far its answers are from those of `first`.

    The build of what was chosen is not timed where it computes something else.
    """
    with undone.step("build"):
        joined = model.build(JOINED, chosen)
    libraries = {JOINED: joined.library, FIRST: first.library}
    with undone.step("time"), Engines(model.whole, libraries) as engines:
        engines.load(libraries)
        if (error := engines.errors(JOINED).get(FIRST, inf)) > allowed:
            return first, None, 0.0
        with model.alone():
            latency_us = {name: each.median for name, each in engines.latencies().items()}
    timed = BeforeAfter(before=latency_us[FIRST], after=latency_us[JOINED])
    return (joined, timed, error) if latency_us[JOINED] < latency_us[FIRST] else (first, timed, 0.0)


def timed_inside(winners: Sequence[Winner], seen: Times, alone: bool) -> list[Winner]:
    """Return winners with what a call of each took inside the model; no time where no clock saw its kernel.

    Where other work of this service went on, times are upper bounds.
    """
    found, disturbed = [], None if alone else 1.0
    for winner in winners:
        task = winner.contest.task
        call_us = seen.get(task.name, 0.0) / task.weight
        run_us = (call_us,) if call_us > 0 else ()
        trial = replace(winner.trial, latency_us=None, run_us=run_us, disturbed=disturbed)
        found.append(replace(winner, trial=trial))
    return found
