"""Withdraw a device's measurements, or turn times of busy hours into upper bounds."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, delete, func, select, update
from sqlalchemy.orm import aliased

from mallorn.core.cost_model_name import base_family
from mallorn.core.outcomes import Outcome
from mallorn.core.states import MeasurementKind
from mallorn.core.values.fleet import DisturbedInterval, Withdrawn
from mallorn.db.repositories.base import Repository, require_row
from mallorn.db.repositories.cost_models import CostModels
from mallorn.db.repositories.dataset_statistics import COUNTS, Counts
from mallorn.db.repositories.learning_curves import LearningCurves
from mallorn.db.repositories.measurements import Measurements
from mallorn.db.tables import CostModelRow, Device, FinishStep, Job, Measurement, Schedule, Task, Workload

AT_A_TIME: Final = 5_000  # rows in one statement
CLOCKS_SEC: Final = 60.0  # hosts' clocks differ by less; results are stored in time
# Outcomes that say nothing about a device.
_NOT_FROM_DEVICE: Final = (Outcome.WITHDRAWN, Outcome.CANCELLED, Outcome.NOT_RECORDED)
HOUR_SEC: Final = 3600
# Ratio to its candidate's shortest time above which a time counts as too long.
BEYOND_NOISE: Final = 1.3
# Least share and number of too long times among an hour's comparable times.
MOST: Final = 0.5
FEWEST: Final = 3
_TIMED: Final = (MeasurementKind.TRIAL, MeasurementKind.FINISH)
_Again = aliased(Measurement, name="again")


class Withdrawals(Repository):
    """Withdraws a device's measurements, and what was derived from them.

    A withdrawn measurement has the outcome WITHDRAWN and no latency or bound, so that no
    query for times returns it, and training on failures leaves it out (`is_not_withdrawn`).
    Its run times stay, and its error names its former outcome. Schedules based on it are
    deleted. Cost models that may have been trained on it become inactive, so that the next
    round trains new versions from the other rows.
    """

    def count(self, name: str, since: float | None = None) -> Withdrawn:
        """Return the numbers of rows that `withdraw` would change, or raise NotFound."""
        from_device = self._is_measured_by(name, since)
        rows = self.session.scalar(select(func.count()).select_from(Measurement).where(from_device)) or 0
        is_based_on_them = Schedule.measurement_id.in_(_ids(from_device))
        schedules = select(func.count()).select_from(Schedule).where(is_based_on_them)
        jobs = select(Schedule.job_id).where(is_based_on_them, Schedule.job_id.is_not(None)).distinct()
        return Withdrawn(
            measurements=rows,
            schedules=self.session.scalar(schedules) or 0,
            cost_models=len(self._cost_models_trained_on(from_device)),
            jobs=sorted(job for job in self.session.scalars(jobs) if job is not None),
        )

    def withdraw(self, name: str, since: float | None = None) -> Withdrawn:
        """Withdraw what a device has measured since a time, or ever; return the counts.

        Raises NotFound if there is no such device. A million rows take minutes; each
        statement changes a few thousand.
        """
        from_device = self._is_measured_by(name, since)
        counts = Counts(self.session)
        counts.lock_name(COUNTS)
        targets = select(Measurement.target_id).where(from_device).distinct()
        for target_id in self.session.scalars(targets).all():
            CostModels(self.session).lock_target(target_id)  # so that no training runs meanwhile
        withdrawn = self.count(name, since)
        self._deactivate_models_trained_on(from_device)
        self.execute_and_count(delete(Schedule).where(Schedule.measurement_id.in_(_ids(from_device))))
        jobs = select(Measurement.job_id).where(from_device).distinct()
        decisions = delete(FinishStep).where(FinishStep.job_id.in_(jobs))
        self.execute_and_count(decisions)  # their finish decides again
        error = Measurement.outcome + ": " + func.coalesce(Measurement.error, "")
        places = self._places(from_device)
        values = {"outcome": Outcome.WITHDRAWN, "latency_us": None, "bound_us": None, "error": error}
        last_id = 0
        query = _ids(from_device).order_by(Measurement.id).limit(AT_A_TIME)
        while ids := self.session.scalars(query.where(Measurement.id > last_id)).all():
            last_id = ids[-1]
            is_in_portion = self.is_among(Measurement.id, ids)
            counts.adjust_outcome_counts(-1, is_in_portion)
            self.execute_and_count(update(Measurement).where(is_in_portion).values(values))
            counts.adjust_outcome_counts(1, is_in_portion)
        LearningCurves(self.session).drop(places)
        return withdrawn

    def mark_disturbed(self, name: str, interval: DisturbedInterval) -> int:
        """Turn times that a device measured in an interval, or within CLOCKS_SEC of it, into
        upper bounds; return how many. Raises NotFound if there is no such device."""
        from_device = self._is_measured_by(name, interval.since - CLOCKS_SEC)
        is_before = Measurement.created_at <= interval.until + CLOCKS_SEC
        times = and_(from_device, is_before, Measurement.latency_us.is_not(None))
        return self.turn_into_bounds(times, 1.0)

    def turn_into_bounds(self, condition: ColumnElement[bool], share: float) -> int:
        """Turn these rows' times into upper bounds; deactivate models trained on them."""
        self._deactivate_models_trained_on(condition)
        places = self._places(condition)
        count = Measurements(self.session).mark_as_bounds(share, condition)
        LearningCurves(self.session).drop(places)
        return count

    def _places(self, condition: ColumnElement[bool]) -> Sequence[tuple[int, int]]:
        """Return the ids of workload and target of rows before they change."""
        query = select(Measurement.workload_id, Measurement.target_id).where(condition).distinct()
        return [(workload_id, target_id) for workload_id, target_id in self.session.execute(query)]

    def _deactivate_models_trained_on(self, condition: ColumnElement[bool]) -> None:
        is_trained = self.is_among(CostModelRow.id, self._cost_models_trained_on(condition))
        self.execute_and_count(update(CostModelRow).where(is_trained).values(active=False))

    def _is_measured_by(self, name: str, since: float | None) -> ColumnElement[bool]:
        row_id = self.session.scalar(select(Device.id).where(Device.name == name))
        device_id = require_row(row_id, f"device {name}", "mallorn devices")
        from_device = Measurement.device_id == device_id, Measurement.outcome.not_in(_NOT_FROM_DEVICE)
        recent = () if since is None else (Measurement.created_at >= since,)
        return and_(*from_device, *recent)

    def _cost_models_trained_on(self, condition: ColumnElement[bool]) -> Sequence[int]:
        place = Measurement.workload_id, Measurement.target_id
        # Grouped before the join, because many jobs have a workload as a task.
        rows = select(*place, func.min(Measurement.id).label("first")).where(condition).group_by(*place)
        firsts = rows.subquery()
        columns = Task.family, firsts.c.target_id
        of_family = (
            select(*columns, func.min(firsts.c.first).label("first"))
            .join(Task, Task.workload_id == firsts.c.workload_id)
            .join(Job, and_(Job.id == Task.job_id, Job.target_id == firsts.c.target_id))
            .group_by(*columns)
            .subquery()
        )
        match = CostModelRow.family == of_family.c.family, CostModelRow.target_id == of_family.c.target_id
        query = select(CostModelRow.id).join(of_family, and_(*match))
        has_seen = CostModelRow.active, CostModelRow.seen_upto >= of_family.c.first
        model_ids = list(self.session.scalars(query.where(*has_seen)))
        # Base models learn from the rows of an operator on every target.
        oldest_by_op = select(Workload.op, func.min(Measurement.id))
        oldest_by_op = oldest_by_op.join(Workload, Workload.id == Measurement.workload_id)
        oldest_by_op = oldest_by_op.where(condition).group_by(Workload.op)
        for op, oldest in self.session.execute(oldest_by_op).all():
            is_base = CostModelRow.family == base_family(op), CostModelRow.seen_upto >= oldest
            model_ids += self.session.scalars(select(CostModelRow.id).where(CostModelRow.active, *is_base))
        return model_ids


def _ids(condition: ColumnElement[bool]) -> Select[int]:
    return select(Measurement.id).where(condition)


@dataclass(frozen=True, slots=True)
class BusyHour:
    """An hour of a job in which most trials took too long, compared with their repeats."""

    job_id: str
    since: float  # seconds since the epoch
    rows: int  # all trials of the hour whose disturbance is unknown
    times: float  # median factor by which they took too long


class BusyHours(Repository):
    """Finds disturbed times among those stored before timings recorded disturbance."""

    def busy_hours(self) -> Sequence[BusyHour]:
        # Trials of unknown disturbance, with their candidate's shortest other time in the context.
        names = "workload_id", "target_id", "context_id", "sketch_id", "decisions"
        same_candidate = and_(*(getattr(_Again, name) == getattr(Measurement, name) for name in names))
        other_rows = _Again.id != Measurement.id, _Again.kind.in_(_TIMED), _Again.latency_us.is_not(None)
        shortest = func.min(_Again.latency_us)
        query: Select[*tuple[Any, ...]] = (
            select(Measurement.job_id, Measurement.created_at, Measurement.latency_us, shortest)
            .join(_Again, and_(same_candidate, *other_rows))
            .where(Measurement.kind == MeasurementKind.TRIAL, Measurement.disturbed.is_(None))
            .where(Measurement.latency_us.is_not(None), Measurement.job_id.is_not(None))
            .group_by(Measurement.id)
        )
        ratios_by_hour = defaultdict[tuple[str, int], list[float]](list)
        for job_id, created_at, us, shortest_us in self.session.execute(query):
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

    def mark_as_bounds(self, hour: BusyHour) -> int:
        """Mark a busy hour's times as mere upper bounds; return the number of rows."""
        of_hour = _of_hour(hour.job_id, hour.since)
        return Withdrawals(self.session).turn_into_bounds(of_hour, 1 - 1 / hour.times)


def _of_hour(job_id: str, since: float) -> ColumnElement[bool]:
    in_hour = Measurement.created_at >= since, Measurement.created_at < since + HOUR_SEC
    unknown = Measurement.disturbed.is_(None), Measurement.latency_us.is_not(None)
    return and_(Measurement.job_id == job_id, Measurement.kind == MeasurementKind.TRIAL, *in_hour, *unknown)
