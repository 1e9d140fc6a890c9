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
LEAST_US: Final = 0.1  # of what takes no time that a clock shows: a tuning record needs one
FIRST, JOINED = "guess-1", "joined"


@dataclass(frozen=True, slots=True)
class CheckedModel:
    """The model with the likeliest guesses, as far from onnxruntime's answers as it may be."""

    built: TunedModel
    error: float
    allowed: float
    times: Times  # of its kernels
    latency_us: dict[str, ModelLatency]  # beside onnxruntime; empty where only the device runs it


def choose_guesses(
    model: JobModel, checked: CheckedModel, guesses: Sequence[Sequence[Winner]], undone: StepLog
) -> InsideChoice:
    """The build with what is fastest of every task that matters, if that is faster as a whole."""
    started = time.monotonic()
    first = replace(checked.built, winners=tuple(_timed(checked.built.winners, checked.times)))
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
            with model.alone():
                times = list(engines.kernel_times(KERNELS_SEC).values())
    chosen = choose([_timed(build.winners, seen) for build, seen in zip(builds, times, strict=True)], times)
    swaps = swapped(first.winners, chosen, [build.winners for build in builds], times)
    build, latency_us = _faster(model, first, chosen, checked.allowed, undone) if swaps else (first, None)
    seconds = round(time.monotonic() - started, 1)
    report = InsideTheModel(tasks=swaps, latency_us=latency_us, taken=build is not first, seconds=seconds)
    return InsideChoice(build, report)


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
) -> tuple[TunedModel, BeforeAfter | None]:
    """The build of what was chosen if it computes the same, and faster; without times where it does not."""
    with undone.step("build"):
        joined = model.build(JOINED, chosen)
    libraries = {JOINED: joined.library, FIRST: first.library}
    with undone.step("time"), Engines(model.whole, libraries) as engines:
        engines.load(libraries)
        if engines.errors(JOINED).get(FIRST, inf) > allowed:
            return first, None
        with model.alone():
            latency_us = {name: each.median for name, each in engines.latencies().items()}
    timed = BeforeAfter(before=latency_us[FIRST], after=latency_us[JOINED])
    return (joined if latency_us[JOINED] < latency_us[FIRST] else first), timed


def _timed(winners: Sequence[Winner], seen: Times) -> list[Winner]:
    """Winners with what a call of them takes inside the model."""
    found = []
    for winner in winners:
        task = winner.contest.task
        call_us = max(seen.get(task.name, 0.0) / task.weight, LEAST_US)
        found.append(replace(winner, trial=replace(winner.trial, latency_us=None, run_us=(call_us,))))
    return found
