"""Weighted fair share: stride scheduling between owners, and between an owner's jobs.

A participant's pass is its number of candidates so far, divided by its weight. The
participant with the lowest pass is next.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mallorn.core.job_options import LARGEST_ROUND

# Each step of priority, up to this one, doubles a job's share among its owner's jobs.
MAX_PRIORITY: Final = 5

# The assumed size of a round while rounds are distributed.
USUAL_ROUND: Final = 16


@dataclass(frozen=True, slots=True)
class JobShare:
    """A tuning job, with its passes (weighted use of devices so far); None before any."""

    id: str
    owner: str
    priority: int = 0
    share_pass: float | None = None  # its pass among its owner's jobs
    owner_pass: float | None = None  # its owner's pass among owners, as of this job's last turn

    @property
    def weight(self) -> float:
        return float(2.0 ** max(-MAX_PRIORITY, min(self.priority, MAX_PRIORITY)))


def sort_by_fair_share(jobs: Iterable[JobShare]) -> tuple[JobShare, ...]:
    """Return the jobs in order of fair share, with current passes (weighted use so far)."""
    of_owner = defaultdict[str, list[JobShare]](list)
    for job in jobs:
        of_owner[job.owner].append(job)
    # Passes only grow, so an owner's newest pass is the largest of its jobs'.
    passes = {
        owner: max((job.owner_pass for job in owned if job.owner_pass is not None), default=None)
        for owner, owned in of_owner.items()
    }
    in_order: list[JobShare] = []
    for owner, owner_pass in _current_passes(passes, dict.fromkeys(passes, 1.0)).items():
        by_id = {job.id: job for job in of_owner[owner]}
        share_passes = {job.id: job.share_pass for job in by_id.values()}
        standings = _current_passes(share_passes, {job.id: job.weight for job in by_id.values()})
        in_order += [
            replace(by_id[job_id], share_pass=share_pass, owner_pass=owner_pass)
            for job_id, share_pass in standings.items()
        ]
    return tuple(in_order)


def charge_job(jobs: Sequence[JobShare], job_id: str, candidates: int) -> JobShare:
    """Return the job with the passes that it has after a turn of `candidates` candidates."""
    job = next(job for job in sort_by_fair_share(jobs) if job.id == job_id)
    share_pass = (job.share_pass or 0.0) + candidates / job.weight
    return replace(job, share_pass=share_pass, owner_pass=(job.owner_pass or 0.0) + candidates)


def distribute_rounds(jobs: Iterable[JobShare], able: Collection[str], count: int) -> dict[str, int]:
    """Distribute `count` rounds over jobs in `able` by fair share; return counts by id."""
    shares = {job.id: job for job in jobs}
    counts: dict[str, int] = {}
    for _ in range(count):
        order = sort_by_fair_share(shares.values())
        if (job_id := next((job.id for job in order if job.id in able), None)) is None:
            break
        counts[job_id] = counts.get(job_id, 0) + 1
        shares[job_id] = charge_job([*shares.values()], job_id, USUAL_ROUND)
    return counts


def _current_passes(passes: Mapping[str, float | None], weights: Mapping[str, float]) -> dict[str, float]:
    """Return the current passes by name, lowest first.

    A participant that could not use its turns is raised to at most one round behind the
    others, so that it cannot catch up at their cost. A newcomer gets the lowest pass and
    goes first.
    """
    finite = {name: value for name, value in passes.items() if value is not None}
    floor = max((value - LARGEST_ROUND / weights[name] for name, value in finite.items()), default=0.0)
    lifted = {name: max(value, floor) for name, value in finite.items()}
    least = min(lifted.values(), default=0.0)
    order = sorted(passes, key=lambda name: (lifted.get(name, least), name in lifted, name))
    return {name: lifted.get(name, least) for name in order}
