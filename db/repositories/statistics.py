"""Counts over the dataset."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, Subquery, func, select

from db.repositories.base import Repository, owned
from db.repositories.best import IMPORTED
from db.repositories.counts import DAY_SEC, Counts
from db.tables import ForeignRecord, ForeignTask, Job, Model, TargetRow, Workload
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount


class Statistics(Repository):
    """Counts the measurements of an owner's jobs, or all."""

    def of(self, owner: str | None) -> DatasetStats:
        """Imported rows and other tuners' records belong to no owner: only None sees them."""
        cells = self._cells(owner)
        named = select(Model.id, func.min(Model.name)).group_by(Model.id)
        if owner is not None:  # others may call the same bytes otherwise
            named = named.where(Model.owner == owner)
        models = dict(self.session.execute(named).all())
        return DatasetStats(
            measurements=sum(cell.rows for cell in cells),
            imported=sum(cell.rows for cell in cells if cell.kind in IMPORTED),
            workloads=self._workloads(owner),
            targets=_counted((cell.target, cell.rows) for cell in cells),
            operators=_counted((cell.op, cell.rows) for cell in cells),
            models=_counted(
                (models.get(cell.model_id, cell.model_id), cell.rows) for cell in cells if cell.model_id
            ),
            outcomes=_counted((cell.told, cell.rows) for cell in cells),
            days=_growth(cells),
            foreign=self._foreign() if owner is None else [],
        )

    def _cells(self, owner: str | None) -> Sequence[Row[*tuple[Any, ...]]]:
        """Row counts grouped by all that is told but workloads."""
        found = self._found(owner)
        by = (
            Workload.op,
            TargetRow.text.label("target"),
            Job.model_id,
            found.c.told,
            found.c.kind,
            found.c.day,
        )
        query = (
            select(*by, func.sum(found.c.rows).label("rows"))
            .join(Workload, Workload.id == found.c.workload_id)
            .join(TargetRow, TargetRow.id == found.c.target_id)
            .join(Job, Job.id == found.c.job_id, isouter=True)
            .group_by(*by)
            .having(func.sum(found.c.rows) > 0)
        )
        return self.session.execute(query).all()

    def _workloads(self, owner: str | None) -> int:
        query = select(func.count(self._found(owner).c.workload_id.distinct()))
        return self.session.scalar(query) or 0

    def _found(self, owner: str | None) -> Subquery:
        return Counts(self.session).cells(None if owner is None else select(Job.id).where(owned(owner)))

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


def _growth(cells: Sequence[Row[*tuple[Any, ...]]]) -> list[DayCount]:
    counter: Counter[int] = Counter()
    for cell in cells:
        counter[cell.day] += cell.rows
    total, days = 0, []
    for day, count in sorted(counter.items()):
        total += count
        date = datetime.fromtimestamp(day * DAY_SEC, UTC).date()
        days.append(DayCount(day=date, count=count, total=total))
    return days
