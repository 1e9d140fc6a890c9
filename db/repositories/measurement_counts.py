"""Measurements by what statistics count, kept up to a mark, so that nobody reads all of them (ADR 0050)."""

from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    String,
    Subquery,
    case,
    cast,
    func,
    literal,
    select,
    union_all,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from db.database_clock import now
from db.repositories.base import Repository
from db.repositories.measurement_filters import left_unbuilt
from db.tables import Measurement, MeasurementCount
from mallorn.core.outcomes import LEFT_UNBUILT

DAY_SEC: Final = 86400
COUNTS: Final = "measurement counts"  # who changes them holds this
# Longer than a transaction lasts that writes measurements: ids are handed out before it commits.
SETTLED_SEC: Final = 600.0
AT_A_TIME: Final = 1_000_000  # rows: a second or two
_KEY: Final = "job_id", "facet", "name"
OUTCOME: Final = "outcome"


class Counts(Repository):
    """What is behind the mark is counted when it is asked for."""

    def grow(self, settled_sec: float = SETTLED_SEC) -> int:
        """Move the mark on, over rows that are as old as this; by how much."""
        self.hold(COUNTS)
        mark = self._mark()
        rows = select(Measurement.id, Measurement.created_at).order_by(Measurement.id)
        next_rows = rows.where(Measurement.id > mark).limit(AT_A_TIME).subquery().c
        young = case((next_rows.created_at > now() - settled_sec, next_rows.id))
        last, unsettled = self.session.execute(select(func.max(next_rows.id), func.min(young))).one()
        end = (last or mark) if unsettled is None else unsettled - 1
        for facet in _facets():
            self._add(facet, 1, Measurement.id > mark, Measurement.id <= end)
        return int(end - mark)

    def move(self, sign: int, which: ColumnElement[bool]) -> None:
        """Rows will have another outcome (-1), or have it now (1); whoever moves them holds COUNTS."""
        self._add(OUTCOME, sign, which, Measurement.id <= self._mark())

    def of(self, jobs: Select[str] | None) -> Subquery:
        """Rows of these jobs, or all, by job, facet and name: those behind the mark, too."""
        found = MeasurementCount
        kept = select(found.job_id, found.facet, found.name, found.rows)
        mark = self._mark()
        behind = [_grouped(facet, 1).where(Measurement.id > mark) for facet in _facets()]
        if jobs is not None:
            kept = kept.where(found.job_id.in_(jobs))
            behind = [each.where(Measurement.job_id.in_(jobs)) for each in behind]
        return union_all(kept, *behind).subquery()

    def _mark(self) -> int:
        return self.session.scalar(select(func.max(MeasurementCount.upto))) or 0

    def _add(self, facet: str, sign: int, *which: ColumnElement[bool]) -> None:
        insert = self.insert(MeasurementCount)
        new, upto = insert.excluded, MeasurementCount.upto
        rows = _grouped(facet, sign).add_columns(func.max(Measurement.id)).where(*which)
        grown = {
            "rows": MeasurementCount.rows + new.rows,
            "upto": case((new.upto > upto, new.upto), else_=upto),
        }
        counted = insert.from_select([*_KEY, "rows", "upto"], rows)
        self.changed(counted.on_conflict_do_update(index_elements=_KEY, set_=grown))


def _facets() -> dict[str, ColumnElement[str]]:
    """What statistics tell apart, each by itself: there are as many counts as jobs have tasks and days."""
    return {
        "target": cast(Measurement.target_id, String),
        "workload": cast(Measurement.workload_id, String),
        OUTCOME: case((left_unbuilt(), LEFT_UNBUILT), else_=Measurement.outcome),
        "kind": Measurement.kind.expression,
        "day": cast(days_since_epoch(Measurement.created_at), String),
    }


def _grouped(facet: str, sign: int) -> Select[str, str, str, int]:
    job = func.coalesce(Measurement.job_id, "").label("job_id")  # imported rows have none
    name = _facets()[facet].label("name")
    rows = (literal(sign) * func.count()).label("rows")
    return select(job, literal(facet).label("facet"), name, rows).group_by(job, name)


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
