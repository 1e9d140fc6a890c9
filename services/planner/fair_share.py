"""Weighted fair share: stride scheduling between owners, and between an owner's jobs.

A participant's pass is its number of candidates so far, divided by its weight. The
participant with the lowest pass is next.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from math import inf
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


class _Turns:
    """Participants with the passes of stride scheduling; the lowest current pass is next.

    A participant that could not use its turns counts as at most one round behind the
    others, so that it cannot catch up at their cost. A newcomer gets the lowest pass and
    goes first. Equal passes are in the order of names.
    """

    def __init__(
        self, passes: Mapping[str, float | None], weights: Mapping[str, float], able: Iterable[str] = ()
    ) -> None:
        """`able` are the participants that may be next."""
        self._weights = weights
        self._passes = {name: value for name, value in passes.items() if value is not None}
        least_passes = (value - LARGEST_ROUND / weights[name] for name, value in self._passes.items())
        self._floor = max(least_passes, default=-inf)
        self._lowest = [(value, name) for name, value in self._passes.items()]
        # Those that may be next: without a pass, with one up to the floor, and above it.
        may_be_next = [(self._passes.get(name), name) for name in able]
        self._new = [name for value, name in may_be_next if value is None]
        self._behind: list[str] = []
        self._ahead = [(value, name) for value, name in may_be_next if value is not None]
        heapify(self._lowest)
        heapify(self._new)
        heapify(self._ahead)

    def current(self, name: str) -> float:
        """Return a participant's current pass."""
        if (value := self._passes.get(name)) is not None:
            return max(value, self._floor)
        while self._lowest and self._passes[self._lowest[0][1]] != self._lowest[0][0]:
            heappop(self._lowest)  # this participant had a turn since
        return max(self._lowest[0][0], self._floor) if self._lowest else 0.0

    def take_next(self) -> str | None:
        """Return who is next, or None; it does not come again before its `charge`."""
        while self._ahead and self._ahead[0][0] <= self._floor:
            heappush(self._behind, heappop(self._ahead)[1])
        names = self._new or self._behind
        if names:
            return heappop(names)
        return heappop(self._ahead)[1] if self._ahead else None

    def charge(self, name: str, candidates: int) -> float:
        """Add a turn of `candidates` candidates to a participant; return its pass."""
        value = self.current(name) + candidates / self._weights[name]
        self._passes[name] = value
        self._floor = max(self._floor, value - LARGEST_ROUND / self._weights[name])
        heappush(self._lowest, (value, name))
        heappush(self._ahead, (value, name))
        return value


def charge_job(jobs: Iterable[JobShare], job_id: str, candidates: int) -> JobShare:
    """Return the job with the passes that it has after a turn of `candidates` candidates."""
    of_owner = _group_by_owner(jobs)
    owner, job = next((owner, owned[job_id]) for owner, owned in of_owner.items() if job_id in owned)
    share_pass = _turns_of_jobs(of_owner[owner]).charge(job_id, candidates)
    owner_pass = _turns_of_owners(of_owner).charge(owner, candidates)
    return replace(job, share_pass=share_pass, owner_pass=owner_pass)


def distribute_rounds(jobs: Iterable[JobShare], able: Collection[str], count: int) -> dict[str, int]:
    """Distribute `count` rounds over jobs in `able` by fair share; return counts by id."""
    of_owner, able = _group_by_owner(jobs), frozenset(able)
    turns = {owner: _turns_of_jobs(owned, able & owned.keys()) for owner, owned in of_owner.items()}
    owners = _turns_of_owners(of_owner, [owner for owner, owned in of_owner.items() if able & owned.keys()])
    counts: dict[str, int] = {}
    for _ in range(count):
        if (owner := owners.take_next()) is None or (job_id := turns[owner].take_next()) is None:
            break
        counts[job_id] = counts.get(job_id, 0) + 1
        owners.charge(owner, USUAL_ROUND)
        turns[owner].charge(job_id, USUAL_ROUND)
    return counts


def _group_by_owner(jobs: Iterable[JobShare]) -> dict[str, dict[str, JobShare]]:
    of_owner = defaultdict[str, dict[str, JobShare]](dict)
    for job in jobs:
        of_owner[job.owner][job.id] = job
    return of_owner


def _turns_of_jobs(jobs: Mapping[str, JobShare], able: Iterable[str] = ()) -> _Turns:
    passes = {job.id: job.share_pass for job in jobs.values()}
    return _Turns(passes, {job.id: job.weight for job in jobs.values()}, able)


def _turns_of_owners(of_owner: Mapping[str, Mapping[str, JobShare]], able: Iterable[str] = ()) -> _Turns:
    # Passes only grow, so an owner's newest pass is the largest of its jobs'.
    passes = {
        owner: max((job.owner_pass for job in jobs.values() if job.owner_pass is not None), default=None)
        for owner, jobs in of_owner.items()
    }
    return _Turns(passes, dict.fromkeys(passes, 1.0), able)
