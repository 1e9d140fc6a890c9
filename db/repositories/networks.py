"""Networks that were tuned: which workloads each is made of."""

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import func, select

from db.repositories.base import Repository
from db.tables import Job, Model, Task, Workload


class Networks(Repository):
    """Reads what the importer found in models, whoever owns them."""

    def weights(self) -> Mapping[str, Mapping[str, int]]:
        """By network how often it calls each workload, by its key; a network is named as it was uploaded."""
        name = func.coalesce(func.min(Model.name), Job.model_id)
        query = (
            select(Job.model_id, name, Workload.key, func.max(Task.weight))
            .join(Task, Task.job_id == Job.id)
            .join(Workload, Workload.id == Task.workload_id)
            .join(Model, Model.id == Job.model_id, isouter=True)
            .group_by(Job.model_id, Workload.key)
            .order_by(Job.model_id, Workload.key)
        )
        found = defaultdict[str, dict[str, int]](dict)
        names: dict[str, str] = {}
        for model_id, called, workload, weight in self.session.execute(query):
            # Two networks of one name stay two.
            known = names.setdefault(called, model_id)
            found[called if known == model_id else f"{called} ({model_id[:8]})"][workload] = weight
        return found
