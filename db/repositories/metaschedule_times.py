"""Times from MetaSchedule's logs."""

from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import and_, func, select

from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.measurement_filters import is_not_refuted
from mallorn.db.tables import Job, Measurement, SourceDataset, Task

# MetaSchedule's logs name no dataset, so they all get this key, which later exports preserve.
STOCK: Final = uuid5(NAMESPACE_URL, "metaschedule").hex


class Stock(Repository):
    """Times from MetaSchedule's logs, of unknown hosts: never a task's best."""

    def best_us_by_task(self, job_id: str) -> dict[int, float]:
        """Return MetaSchedule's best time on the job's target for each task that has one."""
        same_task = and_(Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id)
        query = (
            select(Task.id, func.min(Measurement.latency_us))
            .join(Job, Job.id == Task.job_id)
            .join(Measurement, same_task)
            .join(SourceDataset, SourceDataset.id == Measurement.source_id)
            .where(Task.job_id == job_id, SourceDataset.key == STOCK, is_not_refuted(Job.owner))
            .group_by(Task.id)
        )
        return {task: us for task, us in self.session.execute(query) if us is not None}
