"""Hours of jobs whose times disagree with others of the same candidates: their host was in use."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, func, select
from sqlalchemy.orm import aliased

from db.repositories.base import Repository
from db.repositories.withdraw_measurements import Withdrawals
from db.tables import Measurement
from mallorn.core.states import MeasurementKind

HOUR_SEC: Final = 3600
# Times a candidate's shortest time in its context. A timing that was broken off early is off by less.
BEYOND_NOISE: Final = 1.3
# Of an hour's candidates that were timed more often; and how many there must be of them.
MOST: Final = 0.5
FEWEST: Final = 3

_TIMED: Final = (MeasurementKind.TRIAL, MeasurementKind.FINISH)
_Again = aliased(Measurement, name="again")


@dataclass(frozen=True, slots=True)
class BusyHour:
    """An hour of a job in which most of what can be compared took too long."""

    job_id: str
    since: float  # seconds since the epoch
    rows: int  # trials that nothing tells apart from those
    times: float  # too long, in the median


class BusyHours(Repository):
    """Finds times that were stored before timings told what disturbed them."""

    def busy_hours(self) -> Sequence[BusyHour]:
        """In the order of time."""
        slower = defaultdict[tuple[str, int], list[float]](list)
        for job_id, created_at, us, shortest_us in self.session.execute(_compared()):
            slower[job_id, int(created_at // HOUR_SEC)].append(us / shortest_us)
        found: list[BusyHour] = []
        for (job_id, hour), ratios in sorted(slower.items(), key=lambda item: item[0][1]):
            late = [ratio for ratio in ratios if ratio > BEYOND_NOISE]
            since = float(hour * HOUR_SEC)
            if len(late) < max(FEWEST, MOST * len(ratios)):
                continue
            trials = select(func.count()).select_from(Measurement).where(_of_hour(job_id, since))
            if rows := self.session.scalar(trials):
                found.append(BusyHour(job_id, since, rows, median(late)))
        return found

    def mark(self, hour: BusyHour) -> int:
        """Its times are upper bounds from now on; how many they are."""
        return Withdrawals(self.session).doubt(_of_hour(hour.job_id, hour.since), 1 - 1 / hour.times)


def _of_hour(job_id: str, since: float) -> ColumnElement[bool]:
    during = Measurement.created_at >= since, Measurement.created_at < since + HOUR_SEC
    unknown = Measurement.disturbed.is_(None), Measurement.latency_us.is_not(None)
    return and_(Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL, *during, *unknown)


def _compared() -> Select[*tuple[Any, ...]]:
    """Trials of which nothing is known, with the shortest time that their candidate has in their context."""
    names = "workload_id", "target_id", "context_id", "sketch_id", "decisions"
    same = and_(*(getattr(_Again, name) == getattr(Measurement, name) for name in names))
    own = _Again.id != Measurement.id, _Again.kind.in_(_TIMED), _Again.latency_us.is_not(None)
    shortest = func.min(_Again.latency_us)
    return (
        select(Measurement.job_id, Measurement.created_at, Measurement.latency_us, shortest)
        .join(_Again, and_(same, *own))
        .where(Measurement.kind == MeasurementKind.TRIAL, Measurement.disturbed.is_(None))
        .where(Measurement.latency_us.is_not(None), Measurement.job_id.is_not(None))
        .group_by(Measurement.id)
    )
