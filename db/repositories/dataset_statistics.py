"""Statistics of the dataset: counts of measurements by target, operator, model, outcome and day."""

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
    """Counts the measurements of an owner's jobs, or all measurements."""

    def of(self, owner: str | None) -> DatasetStats:
        """Return an owner's statistics; None also counts imported rows and other tuners' records."""
        counts = Counts(self.session).of(None if owner is None else select(Job.id).where(owned(owner)))
        # Counts by facet and name, over all jobs, without names that have no rows.
        rows_by = defaultdict[str, dict[str, int]](dict)
        key, total = (counts.c.facet, counts.c.name), func.sum(counts.c.rows)
        for facet, name, rows in self.session.execute(select(*key, total).group_by(*key).having(total > 0)):
            rows_by[facet][name] = int(rows)
        workloads = {int(name): rows for name, rows in rows_by["workload"].items()}
        targets = dict(self.session.execute(select(TargetRow.id, TargetRow.text)).all())
        ops = select(Workload.id, Workload.op).where(self.among(Workload.id, workloads))
        return DatasetStats(
            measurements=sum(rows_by["kind"].values()),
            imported=sum(rows_by["kind"].get(kind, 0) for kind in IMPORTED),
            workloads=len(workloads),
            targets=_sum_by_name((targets[int(name)], rows) for name, rows in rows_by["target"].items()),
            operators=_sum_by_name((op, workloads[row_id]) for row_id, op in self.session.execute(ops)),
            models=self._models(counts, owner),
            outcomes=_sum_by_name(rows_by[OUTCOME].items()),
            days=_growth({int(day): rows for day, rows in rows_by["day"].items()}),
            foreign=self._foreign() if owner is None else [],
        )

    def _models(self, counts: Subquery, owner: str | None) -> list[NamedCount]:
        models = select(Model.id, func.min(Model.name)).group_by(Model.id)
        if owner is not None:  # other owners may use another name for the same bytes
            models = models.where(Model.owner == owner)
        names = dict(self.session.execute(models).all())
        by_model = select(Job.model_id, func.sum(counts.c.rows)).join(counts, counts.c.job_id == Job.id)
        rows = self.session.execute(by_model.where(counts.c.facet == "kind").group_by(Job.model_id))
        return _sum_by_name((names.get(model_id, model_id), int(count)) for model_id, count in rows)

    def _foreign(self) -> list[NamedCount]:
        query = select(ForeignTask.format, func.count(ForeignRecord.id)).join(
            ForeignRecord, ForeignRecord.task_id == ForeignTask.id
        )
        return _sum_by_name(self.session.execute(query.group_by(ForeignTask.format)).all())


def _sum_by_name(pairs: Iterable[tuple[str, int] | Row[str, int]]) -> list[NamedCount]:
    counter: Counter[str] = Counter()
    for name, count in pairs:
        counter[name] += count
    return [
        NamedCount(name=name, count=count)
        for name, count in sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    ]


def _growth(count_by_day: Mapping[int, int]) -> list[DayCount]:
    total, days = 0, []
    for day, count in sorted(count_by_day.items()):
        total += count
        date = datetime.fromtimestamp(day * DAY_SEC, UTC).date()
        days.append(DayCount(day=date, count=count, total=total))
    return days
