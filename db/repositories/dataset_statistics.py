"""Counts over the dataset."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from sqlalchemy import Row, Subquery, func, select

from db.repositories.base import Repository, owned
from db.repositories.measurement_counts import DAY_SEC, OUTCOME, Counts
from db.repositories.measurement_filters import IMPORTED
from db.tables import ForeignRecord, ForeignTask, Job, Model, TargetRow, Workload
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount


class Statistics(Repository):
    """Counts the measurements of an owner's jobs, or all."""

    def of(self, owner: str | None) -> DatasetStats:
        """Imported rows and other tuners' records belong to no owner: only None sees them."""
        found = Counts(self.session).of(None if owner is None else select(Job.id).where(owned(owner)))
        # By facet and name, whatever job it was; names without rows are left out.
        told = defaultdict[str, dict[str, int]](dict)
        by, count = (found.c.facet, found.c.name), func.sum(found.c.rows)
        for facet, name, rows in self.session.execute(select(*by, count).group_by(*by).having(count > 0)):
            told[facet][name] = int(rows)
        workloads = {int(name): rows for name, rows in told["workload"].items()}
        targets = dict(self.session.execute(select(TargetRow.id, TargetRow.text)).all())
        ops = select(Workload.id, Workload.op).where(self.among(Workload.id, workloads))
        return DatasetStats(
            measurements=sum(told["kind"].values()),
            imported=sum(told["kind"].get(kind, 0) for kind in IMPORTED),
            workloads=len(workloads),
            targets=_counted((targets[int(name)], rows) for name, rows in told["target"].items()),
            operators=_counted((op, workloads[each]) for each, op in self.session.execute(ops)),
            models=self._models(found, owner),
            outcomes=_counted(told[OUTCOME].items()),
            days=_growth({int(day): rows for day, rows in told["day"].items()}),
            foreign=self._foreign() if owner is None else [],
        )

    def _models(self, found: Subquery, owner: str | None) -> list[NamedCount]:
        named = select(Model.id, func.min(Model.name)).group_by(Model.id)
        if owner is not None:  # others may call the same bytes otherwise
            named = named.where(Model.owner == owner)
        names = dict(self.session.execute(named).all())
        by_model = select(Job.model_id, func.sum(found.c.rows)).join(found, found.c.job_id == Job.id)
        rows = self.session.execute(by_model.where(found.c.facet == "kind").group_by(Job.model_id))
        return _counted((names.get(model_id, model_id), int(count)) for model_id, count in rows)

    def _foreign(self) -> list[NamedCount]:
        query = select(ForeignTask.format, func.count(ForeignRecord.id)).join(
            ForeignRecord, ForeignRecord.task_id == ForeignTask.id
        )
        return _counted(self.session.execute(query.group_by(ForeignTask.format)).all())


def _counted(pairs: Iterable[tuple[str, int] | Row[str, int]]) -> list[NamedCount]:
    counter: Counter[str] = Counter()
    for name, count in pairs:
        counter[name] += count
    return [
        NamedCount(name=name, count=count)
        for name, count in sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    ]


def _growth(counted: Mapping[int, int]) -> list[DayCount]:
    total, days = 0, []
    for day, count in sorted(counted.items()):
        total += count
        date = datetime.fromtimestamp(day * DAY_SEC, UTC).date()
        days.append(DayCount(day=date, count=count, total=total))
    return days
