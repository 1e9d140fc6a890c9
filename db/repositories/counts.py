"""Measurements by what statistics count, kept up to a mark, so that nobody reads all of them (ADR 0050)."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, Subquery, case, func, literal, select, union_all
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from db.clock import now
from db.repositories.base import Repository
from db.repositories.unbuilt import left_unbuilt
from db.tables import Measurement, MeasurementCount
from mallorn.core.outcomes import LEFT_UNBUILT

DAY_SEC: Final = 86400
COUNTS: Final = "measurement counts"  # who changes them holds this
# Longer than a transaction lasts that writes measurements: ids are handed out before it commits.
SETTLED_SEC: Final = 600.0
AT_A_TIME: Final = 1_000_000  # rows: a second or two
NAMES: Final = "target_id", "workload_id", "job_id", "told", "kind", "day"
_CELL: Final = tuple(getattr(MeasurementCount, name) for name in NAMES)


class Counts(Repository):
    """What is behind the mark is counted when it is asked for."""

    def grow(self, settled_sec: float = SETTLED_SEC) -> int:
        """Move the mark on, over rows that are as old as this; by how much."""
        self.hold(COUNTS)
        mark, rows = self._mark(), select(Measurement.id, Measurement.created_at).order_by(Measurement.id)
        next_rows = rows.where(Measurement.id > mark).limit(AT_A_TIME).subquery().c
        young = case((next_rows.created_at > now() - settled_sec, next_rows.id))
        last, unsettled = self.session.execute(select(func.max(next_rows.id), func.min(young))).one()
        end = (last or mark) if unsettled is None else unsettled - 1
        self._add(Measurement.id > mark, Measurement.id <= end)
        return int(end - mark)

    def move(self, sign: int, *which: ColumnElement[bool]) -> None:
        """Rows are about to be told of otherwise (-1), or are so now (1); whoever moves them calls `hold`."""
        self._add(*which, Measurement.id <= self._mark(), sign=sign)

    def cells(self, jobs: Select[str] | None) -> Subquery:
        """Rows of these jobs, or all, by what they are counted by: those behind the mark, too."""
        kept, behind = select(*_CELL, MeasurementCount.rows), _grouped(1).where(Measurement.id > self._mark())
        if jobs is not None:
            kept, behind = (
                kept.where(MeasurementCount.job_id.in_(jobs)),
                behind.where(Measurement.job_id.in_(jobs)),
            )
        return union_all(kept, behind).subquery()

    def _mark(self) -> int:
        return self.session.scalar(select(func.max(MeasurementCount.upto))) or 0

    def _add(self, *which: ColumnElement[bool], sign: int = 1) -> None:
        insert = self.insert(MeasurementCount)
        new, upto = insert.excluded, MeasurementCount.upto
        counted = insert.from_select(
            [*NAMES, "rows", "upto"], _grouped(sign).add_columns(func.max(Measurement.id)).where(*which)
        )
        grown = {
            "rows": MeasurementCount.rows + new.rows,
            "upto": case((new.upto > upto, new.upto), else_=upto),
        }
        self.changed(counted.on_conflict_do_update(index_elements=NAMES, set_=grown))


def _grouped(sign: int) -> Select[Any]:
    day: ColumnElement[int] = days_since_epoch(Measurement.created_at)
    told = case((left_unbuilt(), LEFT_UNBUILT), else_=Measurement.outcome)
    job = func.coalesce(Measurement.job_id, "")  # imported rows have none
    cell = Measurement.target_id, Measurement.workload_id, job, told, Measurement.kind, day
    labelled: list[ColumnElement[Any]] = [
        column.label(name) for name, column in zip(NAMES, cell, strict=True)
    ]
    return select(*labelled, (literal(sign) * func.count()).label("rows")).group_by(*labelled)


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
