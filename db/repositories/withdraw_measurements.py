"""What came from a device is taken back: nobody believes it any more, and it stays to be looked at."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import ColumnElement, Select, and_, delete, func, select, update

from db.repositories.base import Repository
from db.repositories.cost_models import CostModels
from db.repositories.measurement_counts import COUNTS, Counts
from db.repositories.measurements import Measurements
from db.tables import CostModelRow, Device, FinishStep, Job, Measurement, Schedule, Task, Workload
from mallorn.core.cost_model_name import base_family
from mallorn.core.errors import NotFound
from mallorn.core.outcomes import Outcome
from mallorn.core.values.fleet import Withdrawn

AT_A_TIME: Final = 5_000  # rows in one statement
# What no device had a part in.
_NOT_ITS_DOING: Final = (Outcome.WITHDRAWN, Outcome.CANCELLED, Outcome.NOT_RECORDED)


class Withdrawals(Repository):
    """Takes back what a device measured, and what rests on it.

    A measurement that is withdrawn has that as its outcome, and no latency or bound: who looks for times
    does not find it, and who learns from failures leaves it out (`best.believed`). Its run times stay, and
    its error says what it was. Schedules that were chosen by such a measurement go; cost models that may have
    learned from one are active no longer, so that the next round trains a line anew from what is left.
    """

    def count(self, name: str, since: float | None = None) -> Withdrawn:
        """What `withdraw` would take back. Raises NotFound."""
        came = self._came_from(name, since)
        rows = self.session.scalar(select(func.count()).select_from(Measurement).where(came)) or 0
        resting = Schedule.measurement_id.in_(_ids(came))
        jobs = select(Schedule.job_id).where(resting, Schedule.job_id.is_not(None)).distinct()
        return Withdrawn(
            measurements=rows,
            schedules=self.session.scalar(select(func.count()).select_from(Schedule).where(resting)) or 0,
            cost_models=len(self._learned(came)),
            jobs=sorted(job for job in self.session.scalars(jobs) if job is not None),
        )

    def withdraw(self, name: str, since: float | None = None) -> Withdrawn:
        """Take back what the device measured since then, or ever; what that was. Raises NotFound.

        A million rows take minutes, a few thousand of them in a statement.
        """
        came = self._came_from(name, since)
        counts = Counts(self.session)
        counts.hold(COUNTS)
        for target_id in self.session.scalars(select(Measurement.target_id).where(came).distinct()).all():
            CostModels(self.session).lock_target(target_id)  # no training comes between
        found = self.count(name, since)
        models = update(CostModelRow).where(self.among(CostModelRow.id, self._learned(came)))
        self.changed(models.values(active=False))
        self.changed(delete(Schedule).where(Schedule.measurement_id.in_(_ids(came))))
        theirs = select(Measurement.job_id).where(came).distinct()
        self.changed(delete(FinishStep).where(FinishStep.job_id.in_(theirs)))  # such a finish decides anew
        words = Measurement.outcome + ": " + func.coalesce(Measurement.error, "")
        taken = {"outcome": Outcome.WITHDRAWN, "latency_us": None, "bound_us": None, "error": words}
        for ids in self._portions(came):
            these = self.among(Measurement.id, ids)
            counts.move(-1, these)
            self.changed(update(Measurement).where(these).values(taken))
            counts.move(1, these)
        return found

    def doubt(self, which: ColumnElement[bool], share: float) -> int:
        """These times turned out to be mere bounds; how many. No model that saw them stays active."""
        models = update(CostModelRow).where(self.among(CostModelRow.id, self._learned(which)))
        self.changed(models.values(active=False))
        return Measurements(self.session).mark_as_bounds(share, which)

    def _came_from(self, name: str, since: float | None) -> ColumnElement[bool]:
        device_id = self.session.scalar(select(Device.id).where(Device.name == name))
        if device_id is None:
            raise NotFound(f"there is no device {name}", hint="mallorn devices")
        of_it = Measurement.device_id == device_id, Measurement.outcome.not_in(_NOT_ITS_DOING)
        recent = () if since is None else (Measurement.created_at >= since,)
        return and_(*of_it, *recent)

    def _portions(self, came: ColumnElement[bool]) -> Iterator[Sequence[int]]:
        last = 0
        query = _ids(came).order_by(Measurement.id).limit(AT_A_TIME)
        while ids := self.session.scalars(query.where(Measurement.id > last)).all():
            yield ids
            last = ids[-1]

    def _learned(self, came: ColumnElement[bool]) -> Sequence[int]:
        """Active models of the families and targets it belongs to, which had seen the first of it."""
        place = Measurement.workload_id, Measurement.target_id
        # Grouped before they are joined: many jobs have a workload as a task.
        met = select(*place, func.min(Measurement.id).label("first")).where(came).group_by(*place).subquery()
        columns = Task.family, met.c.target_id
        of_family = (
            select(*columns, func.min(met.c.first).label("first"))
            .join(Task, Task.workload_id == met.c.workload_id)
            .join(Job, and_(Job.id == Task.job_id, Job.target_id == met.c.target_id))
            .group_by(*columns)
            .subquery()
        )
        same = CostModelRow.family == of_family.c.family, CostModelRow.target_id == of_family.c.target_id
        query = select(CostModelRow.id).join(of_family, and_(*same))
        knew = CostModelRow.active, CostModelRow.seen_upto >= of_family.c.first
        return [*self.session.scalars(query.where(*knew)), *self._taught(came)]

    def _taught(self, came: ColumnElement[bool]) -> Iterator[int]:
        """Active bases of its operators, on whatever target, whose frozen rows may hold some of it."""
        first = select(Workload.op, func.min(Measurement.id)).join(
            Workload, Workload.id == Measurement.workload_id
        )
        for op, oldest in self.session.execute(first.where(came).group_by(Workload.op)).all():
            of_op = CostModelRow.family == base_family(op), CostModelRow.seen_upto >= oldest
            yield from self.session.scalars(select(CostModelRow.id).where(CostModelRow.active, *of_op))


def _ids(came: ColumnElement[bool]) -> Select[int]:
    return select(Measurement.id).where(came)
