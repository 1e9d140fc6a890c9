"""Decide close contests inside the whole model, where caches are as the model leaves them.

Timed by itself, a kernel finds its weights in the caches from the previous repeat; inside the
model it often has to fetch them. So close rivals of the winners are compiled into the model,
for all tasks at once, and every kernel is timed inside it. First guesses (a job without trials
takes the fastest of three per task) always take part, however slow they were, so that tuning
never makes a model slower than it would be without trials.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Final, NamedTuple

from db.repositories.jobs import Jobs
from db.session import read_clock
from mallorn.core.values.finish_report import BeforeAfter, InsideTheModel, Swap
from workers.finish.job_model import JobModel, TunedModel
from workers.finish.numeric_checker import Checker
from workers.finish.winners import Winner

# Limits for compiling the rivals and the first guesses, as shares of the time spent on tuning.
LARGEST_SHARE: Final = 0.25
GUESSES_SHARE: Final = 1.0
# Least relative gain inside the model: more than the noise between two builds of the same
# kernel.
WORTH: Final = 0.02
BEFORE, AFTER, GUESSES = "before", "after", "guesses"
SAYS: Final = "the closest contests are decided inside the whole model"
log = logging.getLogger(__name__)
Times = Mapping[str, float]  # microseconds per run in each kernel, by the name of its task


class InsideChoice(NamedTuple):
    """The build to export, and the report section on how it was chosen."""

    build: TunedModel
    report: InsideTheModel | None
    error: float = 0.0  # of its outputs against those of the build that was checked


def decide_inside(model: JobModel, first: TunedModel, verifier: Checker) -> InsideChoice:
    """Return the fastest of three builds: winners, faster rivals, or first guesses.

    Returns the first build without a report if there are no rivals or no time to compile them.
    """
    started = time.monotonic()
    if not (affordable := _affordable_fields(model, first)):
        return InsideChoice(first, None)
    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).set_reason(model.claimed.job.id, SAYS)
    builds = [first, *(model.build(f"rivals-{n}", field) for n, field in enumerate(affordable, 1))]
    times = model.kernel_times(builds)
    chosen = verified(first.winners, choose([build.winners for build in builds], times), verifier)
    swaps = swapped(first.winners, chosen, [build.winners for build in builds], times)
    finalists = {BEFORE: first}
    if swaps:
        finalists[AFTER] = model.build("joined", chosen)
    if _guesses(first.winners):
        finalists[GUESSES] = builds[-1]
    latency_us = model.latencies(finalists) if len(finalists) > 1 else {}
    name, build = _fastest_build(finalists, latency_us, verifier)
    report = InsideTheModel(
        tasks=swaps,
        latency_us=BeforeAfter(**latency_us) if latency_us else None,
        taken=name == AFTER,
        guessed=name == GUESSES,
        seconds=round(time.monotonic() - started, 1),
    )
    return InsideChoice(build, report)


def _affordable_fields(model: JobModel, first: TunedModel) -> list[list[Winner]]:
    """Return the sets of schedules to compile in addition to the winners.

    Empty if the job has a deadline (no time), the model is large (no memory), or the job has
    no trials (its winners are first guesses already).
    """
    job = model.claimed.job
    if job.minutes is not None or job.trials == 0 or first.is_large:
        return []
    with model.claimed.runtime.database.session() as session:
        tuned_sec = read_clock(session) - job.started_at if job.started_at else 0.0
    rivals = fields(first.winners, [winner.rivals for winner in first.winners])
    guesses = _guesses(first.winners)
    if first.compiled.seconds * (len(rivals + guesses) + 1) <= LARGEST_SHARE * tuned_sec:
        return rivals + guesses
    return guesses if first.compiled.seconds * 2 <= GUESSES_SHARE * tuned_sec else []


def _guesses(winners: Sequence[Winner]) -> list[list[Winner]]:
    """Return the first guess of every task as one set; empty if first guesses won all tasks."""
    is_beaten = any(winner.guess is not None for winner in winners)
    return [[winner.guess or winner for winner in winners]] if is_beaten else []


def _fastest_build(
    builds: Mapping[str, TunedModel], latency_us: Mapping[str, float], verifier: Checker
) -> tuple[str, TunedModel]:
    """Return the name and build with the lowest model latency.

    First guesses are chosen only if they are faster by more than noise and pass the numeric
    check.
    """
    fastest = min((name for name in builds if name != GUESSES), key=lambda name: latency_us.get(name, 0.0))
    guessed = builds.get(GUESSES)
    if guessed is not None and latency_us[GUESSES] < latency_us[fastest] * (1 - WORTH):
        checked = verified(builds[BEFORE].winners, guessed.winners, verifier)
        if [each.slot for each in checked] == [each.slot for each in guessed.winners]:
            return GUESSES, replace(guessed, winners=tuple(checked))
    return fastest, builds[fastest]


def choose(fields: Sequence[Sequence[Winner]], times: Sequence[Times], worth: float = WORTH) -> list[Winner]:
    """Return the fastest winner per task inside the model, or the first if gains are small."""
    chosen = []
    for row in zip(*fields, strict=True):
        name = row[0].contest.task.name
        timed = [(winner, us[name]) for winner, us in zip(row, times, strict=True) if name in us]
        best, best_us = min(timed, key=lambda entry: entry[1], default=(row[0], inf))
        first_us = times[0].get(name, 0.0)  # nothing is faster than a first one without a time
        chosen.append(best if best_us < first_us * (1 - worth) else row[0])
    return chosen


def fields(winners: Sequence[Winner], others: Sequence[Sequence[Winner]]) -> list[list[Winner]]:
    """Return one set per rank n: the nth of each task's others, else its winner."""
    most = max(map(len, others), default=0)
    pairs = list(zip(winners, others, strict=True))
    return [[row[n] if n < len(row) else winner for winner, row in pairs] for n in range(most)]


def verified(winners: Sequence[Winner], others: Sequence[Winner], verifier: Checker) -> list[Winner]:
    """Return per task the other winner if it passes the numeric check, else the present one."""
    found = list(winners)
    for index, (winner, rival) in enumerate(zip(winners, others, strict=True)):
        if rival is winner:
            continue
        verdict = verifier.verify(winner.contest.program, winner.contest.slots[rival.slot])
        if verdict.ok:
            found[index] = replace(rival, trace=verdict.trace, max_error=verdict.max_error)
        else:
            log.warning("a rival of %s is left out: %s", winner.contest.task.name, verdict.words)
    return found


def swapped(
    before: Sequence[Winner],
    after: Sequence[Winner],
    fields: Sequence[Sequence[Winner]],
    times: Sequence[Times],
) -> list[Swap]:
    """Return the tasks whose schedule changed, with times inside the model before and after."""
    found = []
    for index, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.slot == new.slot:
            continue
        name = old.contest.task.name
        number = next(n for n, field in enumerate(fields) if field[index].slot == new.slot)
        found.append(Swap(task=name, before_us=times[0][name], after_us=times[number][name]))
    return found
