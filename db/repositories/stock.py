"""What stock MetaSchedule's own tuner found, by the logs that were brought in."""

from typing import Final
from uuid import NAMESPACE_URL, uuid5

from sqlalchemy import and_, func, select

from db.repositories.base import Repository
from db.repositories.best import sound
from db.tables import Job, Measurement, Source, Task

# Its logs name no dataset: they all stand for this one, which later exports of a dataset keep.
STOCK: Final = uuid5(NAMESPACE_URL, "metaschedule").hex


class Stock(Repository):
    """Times of hosts that the logs do not name: shown beside ours, and never the best of a task."""

    def best_us(self, job_id: str) -> dict[int, float]:
        """The least time of each workload on the job's target, by the task's id; others are left out."""
        same = and_(Measurement.workload_id == Task.workload_id, Measurement.target_id == Job.target_id)
        query = (
            select(Task.id, func.min(Measurement.latency_us))
            .join(Job, Job.id == Task.job_id)
            .join(Measurement, same)
            .join(Source, Source.id == Measurement.source_id)
            .where(Task.job_id == job_id, Source.key == STOCK, sound())
            .group_by(Task.id)
        )
        return {task: us for task, us in self.session.execute(query) if us is not None}
