"""Networks and their workloads."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import func, select

from db.repositories.base import Repository
from db.tables import Job, Model, Task, Workload


class Networks(Repository):
    """Reads the workloads that the importer found in models of all owners, but for those of private jobs."""

    def weights(self) -> Mapping[str, Mapping[str, int]]:
        """For each network, by its uploaded name, the number of calls of each workload."""
        name = func.coalesce(func.min(Model.name), Job.model_id)
        query = (
            select(Job.model_id, name, Workload.key, func.max(Task.weight))
            .join(Task, Task.job_id == Job.id)
            .join(Workload, Workload.id == Task.workload_id)
            .join(Model, Model.id == Job.model_id, isouter=True)
            .where(~Job.private)
            .group_by(Job.model_id, Workload.key)
            .order_by(Job.model_id, Workload.key)
        )
        found = defaultdict[str, dict[str, int]](dict)
        names: dict[str, str] = {}
        for model_id, called, workload, weight in self.session.execute(query):
            # Two networks with one name stay separate.
            known = names.setdefault(called, model_id)
            found[called if known == model_id else f"{called} ({model_id[:8]})"][workload] = weight
        return found
