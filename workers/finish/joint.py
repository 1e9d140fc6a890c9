"""Decides close contests inside the whole model: caches are warm or cold there as the model leaves them.

Alone, a kernel finds its weights where the last repeat left them; in the model it often has to fetch them.
So the rivals that come close to a winner are compiled into the model, all tasks' at once, and every kernel
is timed where it runs.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from db.repositories.jobs import Jobs
from workers.finish.checking import Checker
from workers.finish.stand import Built, Stand
from workers.finish.winners import Winner

# The pass takes at most this share of the time that the tuning took.
LARGEST_SHARE: Final = 0.25
# A rival must be faster inside the model by more than the noise between two builds of the same kernel.
WORTH: Final = 0.02
SAYS: Final = "the closest contests are decided inside the whole model"
log = logging.getLogger(__name__)
Times = Mapping[str, float]  # of kernels, which go by their tasks' names


@dataclass(frozen=True, slots=True)
class Joint:
    """The build to hand out, and what the report says of how it was found."""

    build: Built
    report: dict[str, Any]


def decide_inside(stand: Stand, first: Built, verifier: Checker) -> Joint:
    """The faster of the winners' build and one with those rivals that are faster inside the model."""
    started = time.monotonic()
    with stand.claimed.runtime.database.transaction() as session:
        Jobs(session).say(stand.claimed.job.id, SAYS)
    fields = _fields(first.winners)
    builds = [first, *(stand.build(f"rivals-{n}", field) for n, field in enumerate(fields, 1))]
    times = stand.kernels(builds)
    chosen = choose([build.winners for build in builds], times)
    verified = [_verified(old, new, verifier) for old, new in zip(first.winners, chosen, strict=True)]
    swaps = _swaps(first.winners, verified, [build.winners for build in builds], times)
    report: dict[str, Any] = {"tasks": swaps}
    build = first
    if swaps:
        joined = stand.build("joined", verified)
        latency_us = stand.latencies({"before": first, "after": joined})
        report["latency_us"] = latency_us
        build = joined if latency_us["after"] < latency_us["before"] else first
    report |= {"taken": build is not first, "seconds": round(time.monotonic() - started, 1)}
    return Joint(build, report)


def affordable(stand: Stand, first: Built) -> bool:
    """Whether there is a rival at all, and the pass is short beside the tuning; a deadline leaves no time."""
    job = stand.claimed.job
    fields = len(_fields(first.winners))
    cost_sec = first.seconds * (fields + 1)
    tuned_sec = time.time() - job.started_at if job.started_at else 0.0
    return bool(fields) and job.minutes is None and cost_sec <= LARGEST_SHARE * tuned_sec


def choose(fields: Sequence[Sequence[Winner]], times: Sequence[Times]) -> list[Winner]:
    """For every task what is fastest inside the model; the first field's where little would be won."""
    return [
        _fastest(
            [(winner, seen.get(winner.contest.task.name)) for winner, seen in zip(row, times, strict=True)]
        )
        for row in zip(*fields, strict=True)
    ]


def _fastest(entries: Sequence[tuple[Winner, float | None]]) -> Winner:
    first, first_us = entries[0]
    timed = [(winner, us) for winner, us in entries if us is not None]
    if first_us is None or not timed:
        return first
    best, best_us = min(timed, key=lambda entry: entry[1])
    return best if best_us < first_us * (1 - WORTH) else first


def _fields(winners: Sequence[Winner]) -> list[list[Winner]]:
    """The nth rival of every task; a task that has no nth keeps its winner."""
    most = max((len(winner.rivals) for winner in winners), default=0)
    return [[w.rivals[n] if n < len(w.rivals) else w for w in winners] for n in range(most)]


def _verified(winner: Winner, rival: Winner, verifier: Checker) -> Winner:
    """The rival if it computes the right thing, else the winner, which does."""
    if rival is winner:
        return winner
    verdict = verifier.verify(winner.contest.program, winner.contest.slots[rival.slot])
    if not verdict.ok:
        log.warning("a rival of %s is left out: %s", winner.contest.task.name, verdict.words)
        return winner
    return replace(rival, trace=verdict.trace, max_error=verdict.max_error)


def _swaps(
    before: Sequence[Winner],
    after: Sequence[Winner],
    fields: Sequence[Sequence[Winner]],
    times: Sequence[Times],
) -> list[dict[str, Any]]:
    """What is exchanged, with its time inside the model before and after."""
    found = []
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        if old.slot == new.slot:
            continue
        name = old.contest.task.name
        number = next(n for n, field in enumerate(fields) if field[place].slot == new.slot)
        found.append({"task": name, "before_us": times[0][name], "after_us": times[number][name]})
    return found
