"""Counts over the dataset, in one pass over the measurements."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, Row, Subquery, case, func, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from db.repositories.base import Repository, owned
from db.repositories.best import IMPORTED
from db.repositories.unbuilt import left_unbuilt
from db.tables import ForeignRecord, ForeignTask, Job, Measurement, Model, TargetRow, Workload
from mallorn.core.outcomes import LEFT_UNBUILT
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount

DAY_SEC = 86400


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
            workloads=len({cell.workload_id for cell in cells}),
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
        """Row counts grouped by all dimensions; names are joined after grouping."""
        found = _grouped(owner)
        query = (
            select(found, Workload.op, TargetRow.text.label("target"), Job.model_id)
            .join(Workload, Workload.id == found.c.workload_id)
            .join(TargetRow, TargetRow.id == found.c.target_id)
            .join(Job, Job.id == found.c.job_id, isouter=True)
        )
        return self.session.execute(query).all()

    def _foreign(self) -> list[NamedCount]:
        query = select(ForeignTask.format, func.count(ForeignRecord.id)).join(
            ForeignRecord, ForeignRecord.task_id == ForeignTask.id
        )
        return _counted(self.session.execute(query.group_by(ForeignTask.format)).all())


class days_since_epoch(FunctionElement[int]):
    """Whole days since the epoch."""

    type = Integer()
    inherit_cache = True


@compiles(days_since_epoch, "postgresql")
def _postgres_days(element: days_since_epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return f"floor({compiler.process(element.clauses, **kw)} / {DAY_SEC})::integer"


@compiles(days_since_epoch, "sqlite")
def _sqlite_days(element: days_since_epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return f"cast({compiler.process(element.clauses, **kw)} / {DAY_SEC} as integer)"


def _grouped(owner: str | None) -> Subquery:
    day: ColumnElement[int] = days_since_epoch(Measurement.created_at).label("day")
    alike = Measurement.target_id, Measurement.workload_id, Measurement.job_id
    told = case((left_unbuilt(), LEFT_UNBUILT), else_=Measurement.outcome).label("told")
    query = select(*alike, told, Measurement.kind, day, func.count().label("rows"))
    if owner is not None:
        query = query.where(Measurement.job_id.in_(select(Job.id).where(owned(owner))))
    return query.group_by(*alike, "told", Measurement.kind, day).subquery()


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
