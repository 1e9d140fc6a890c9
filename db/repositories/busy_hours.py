"""Find hours in which a job's times are longer than other times of the same candidates: a busy host."""

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
# Ratio to its candidate's shortest time above which a time counts as too long.
BEYOND_NOISE: Final = 1.3
# Least share and number of too long times among an hour's comparable times.
MOST: Final = 0.5
FEWEST: Final = 3

_TIMED: Final = (MeasurementKind.TRIAL, MeasurementKind.FINISH)
_Again = aliased(Measurement, name="again")


@dataclass(frozen=True, slots=True)
class BusyHour:
    """An hour of a job in which most comparable trials took too long."""

    job_id: str
    since: float  # seconds since the epoch
    rows: int  # all trials of the hour whose disturbance is unknown
    times: float  # median factor by which they took too long


class BusyHours(Repository):
    """Finds disturbed times among those stored before timings recorded disturbance."""

    def busy_hours(self) -> Sequence[BusyHour]:
        """Return the busy hours of all jobs, oldest first."""
        ratios_by_hour = defaultdict[tuple[str, int], list[float]](list)
        for job_id, created_at, us, shortest_us in self.session.execute(_compared()):
            ratios_by_hour[job_id, int(created_at // HOUR_SEC)].append(us / shortest_us)
        busy_hours: list[BusyHour] = []
        for (job_id, hour), ratios in sorted(ratios_by_hour.items(), key=lambda item: item[0][1]):
            high_ratios = [ratio for ratio in ratios if ratio > BEYOND_NOISE]
            since = float(hour * HOUR_SEC)
            if len(high_ratios) < max(FEWEST, MOST * len(ratios)):
                continue
            trials = select(func.count()).select_from(Measurement).where(_of_hour(job_id, since))
            if rows := self.session.scalar(trials):
                busy_hours.append(BusyHour(job_id, since, rows, median(high_ratios)))
        return busy_hours

    def mark(self, hour: BusyHour) -> int:
        """Turn the times of an hour into upper bounds; return how many there were."""
        return Withdrawals(self.session).doubt(_of_hour(hour.job_id, hour.since), 1 - 1 / hour.times)


def _of_hour(job_id: str, since: float) -> ColumnElement[bool]:
    in_hour = Measurement.created_at >= since, Measurement.created_at < since + HOUR_SEC
    unknown = Measurement.disturbed.is_(None), Measurement.latency_us.is_not(None)
    return and_(Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL, *in_hour, *unknown)


def _compared() -> Select[*tuple[Any, ...]]:
    """Query trials of unknown disturbance with their candidate's shortest other time in the context."""
    names = "workload_id", "target_id", "context_id", "sketch_id", "decisions"
    same_candidate = and_(*(getattr(_Again, name) == getattr(Measurement, name) for name in names))
    other_rows = _Again.id != Measurement.id, _Again.kind.in_(_TIMED), _Again.latency_us.is_not(None)
    shortest = func.min(_Again.latency_us)
    return (
        select(Measurement.job_id, Measurement.created_at, Measurement.latency_us, shortest)
        .join(_Again, and_(same_candidate, *other_rows))
        .where(Measurement.kind == MeasurementKind.TRIAL, Measurement.disturbed.is_(None))
        .where(Measurement.latency_us.is_not(None), Measurement.job_id.is_not(None))
        .group_by(Measurement.id)
    )
