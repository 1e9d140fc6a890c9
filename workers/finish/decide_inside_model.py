"""Decides close contests inside the whole model: caches are warm or cold there as the model leaves them.

Alone, a kernel finds its weights where the last repeat left them; in the model it often has to fetch them.
So the rivals that come close to a winner are compiled into the model, all tasks' at once, and every kernel
is timed where it runs. First guesses, of which a job without trials takes the fastest of three a task, take
part however far behind they fell: no model is to be slower for having been tuned.
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

# The rivals take at most this share of the time that the tuning took, and the first guesses this one.
LARGEST_SHARE: Final = 0.25
GUESSES_SHARE: Final = 1.0
# A rival must be faster inside the model by more than the noise between two builds of the same kernel.
WORTH: Final = 0.02
BEFORE, AFTER, GUESSES = "before", "after", "guesses"
SAYS: Final = "the closest contests are decided inside the whole model"
log = logging.getLogger(__name__)
Times = Mapping[str, float]  # of kernels, which go by their tasks' names


class InsideChoice(NamedTuple):
    """The build to hand out, and what the report says of how it was found."""

    build: TunedModel
    report: InsideTheModel | None
    error: float = 0.0  # how far its answers are from those of the build that was checked


def decide_inside(model: JobModel, first: TunedModel, verifier: Checker) -> InsideChoice:
    """The fastest of the winners' build, one with those that are faster inside, and that of first guesses.

    The first build without a report where there is no rival, or no time for any.
    """
    started = time.monotonic()
    if not (affordable := _affordable_fields(model, first)):
        return InsideChoice(first, None)
    with model.claimed.runtime.database.transaction() as session:
        Jobs(session).say(model.claimed.job.id, SAYS)
    builds = [first, *(model.build(f"rivals-{n}", field) for n, field in enumerate(affordable, 1))]
    times = model.kernel_times(builds)
    chosen = verified(first.winners, choose([build.winners for build in builds], times), verifier)
    swaps = swapped(first.winners, chosen, [build.winners for build in builds], times)
    whole = {BEFORE: first}
    if swaps:
        whole[AFTER] = model.build("joined", chosen)
    if _guesses(first.winners):
        whole[GUESSES] = builds[-1]
    latency_us = model.latencies(whole) if len(whole) > 1 else {}
    name, build = _fastest_build(whole, latency_us, verifier)
    report = InsideTheModel(
        tasks=swaps,
        latency_us=BeforeAfter(**latency_us) if latency_us else None,
        taken=name == AFTER,
        guessed=name == GUESSES,
        seconds=round(time.monotonic() - started, 1),
    )
    return InsideChoice(build, report)


def _affordable_fields(model: JobModel, first: TunedModel) -> list[list[Winner]]:
    """What is compiled beside the winners: a deadline leaves no time, a large model no memory.

    Without trials all are guesses.
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
    """What a job without trials would have of every task; empty where such a guess won each."""
    lost = any(winner.guess is not None for winner in winners)
    return [[winner.guess or winner for winner in winners]] if lost else []


def _fastest_build(
    whole: Mapping[str, TunedModel], latency_us: Mapping[str, float], verifier: Checker
) -> tuple[str, TunedModel]:
    """By the whole model's latency; first guesses only if they are faster by more than noise, and correct."""
    found = min((name for name in whole if name != GUESSES), key=lambda name: latency_us.get(name, 0.0))
    guessed = whole.get(GUESSES)
    if guessed is not None and latency_us[GUESSES] < latency_us[found] * (1 - WORTH):
        checked = verified(whole[BEFORE].winners, guessed.winners, verifier)
        if [each.slot for each in checked] == [each.slot for each in guessed.winners]:
            return GUESSES, replace(guessed, winners=tuple(checked))
    return found, whole[found]


def choose(fields: Sequence[Sequence[Winner]], times: Sequence[Times], worth: float = WORTH) -> list[Winner]:
    """For every task what is fastest inside the model; the first field's where little would be won."""
    chosen = []
    for row in zip(*fields, strict=True):
        name = row[0].contest.task.name
        timed = [(winner, seen[name]) for winner, seen in zip(row, times, strict=True) if name in seen]
        best, best_us = min(timed, key=lambda entry: entry[1], default=(row[0], inf))
        first_us = times[0].get(name, 0.0)  # nothing is faster than a first one without a time
        chosen.append(best if best_us < first_us * (1 - worth) else row[0])
    return chosen


def fields(winners: Sequence[Winner], others: Sequence[Sequence[Winner]]) -> list[list[Winner]]:
    """The nth of the others of every task; a task that has no nth keeps its winner."""
    most = max(map(len, others), default=0)
    pairs = list(zip(winners, others, strict=True))
    return [[row[n] if n < len(row) else winner for winner, row in pairs] for n in range(most)]


def verified(winners: Sequence[Winner], others: Sequence[Winner], verifier: Checker) -> list[Winner]:
    """The others where they compute the right thing, else the winners, which do."""
    found = list(winners)
    for place, (winner, rival) in enumerate(zip(winners, others, strict=True)):
        if rival is winner:
            continue
        verdict = verifier.verify(winner.contest.program, winner.contest.slots[rival.slot])
        if verdict.ok:
            found[place] = replace(rival, trace=verdict.trace, max_error=verdict.max_error)
        else:
            log.warning("a rival of %s is left out: %s", winner.contest.task.name, verdict.words)
    return found


def swapped(
    before: Sequence[Winner],
    after: Sequence[Winner],
    fields: Sequence[Sequence[Winner]],
    times: Sequence[Times],
) -> list[Swap]:
    """What is exchanged, with its time inside the model before and after."""
    found = []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.slot == new.slot:
            continue
        name = old.contest.task.name
        number = next(n for n, field in enumerate(fields) if field[place].slot == new.slot)
        found.append(Swap(task=name, before_us=times[0][name], after_us=times[number][name]))
    return found
