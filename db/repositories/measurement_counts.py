"""Counts of measurements, stored up to a mark, so that statistics do not read all rows (ADR 0050)."""

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
COUNTS: Final = "measurement counts"  # name of the lock for changes of the counts
# Longer than any transaction that writes measurements: they get ids before the commit.
SETTLED_SEC: Final = 600.0
AT_A_TIME: Final = 1_000_000  # rows counted by one call, in a second or two
_KEY: Final = "job_id", "facet", "name"
OUTCOME: Final = "outcome"


class Counts(Repository):
    """Stored counts of measurements up to a mark; each query counts the measurements after it."""

    def grow(self, settled_sec: float = SETTLED_SEC) -> int:
        """Move the mark over measurements older than `settled_sec`; return by how many ids."""
        self.hold(COUNTS)
        mark = self._mark()
        rows = select(Measurement.id, Measurement.created_at).order_by(Measurement.id)
        next_rows = rows.where(Measurement.id > mark).limit(AT_A_TIME).subquery().c
        unsettled_id = case((next_rows.created_at > now() - settled_sec, next_rows.id))
        last, unsettled = self.session.execute(select(func.max(next_rows.id), func.min(unsettled_id))).one()
        end = (last or mark) if unsettled is None else unsettled - 1
        for facet in _facets():
            self._add(facet, 1, Measurement.id > mark, Measurement.id <= end)
        return int(end - mark)

    def move(self, sign: int, which: ColumnElement[bool]) -> None:
        """Subtract rows before their outcome changes (-1), or add them after (1). Hold COUNTS meanwhile."""
        self._add(OUTCOME, sign, which, Measurement.id <= self._mark())

    def of(self, jobs: Select[str] | None) -> Subquery:
        """Return counts of these jobs, or of all, by job, facet and name, with rows after the mark."""
        counts = MeasurementCount
        stored_counts = select(counts.job_id, counts.facet, counts.name, counts.rows)
        mark = self._mark()
        new_counts = [_grouped(facet, 1).where(Measurement.id > mark) for facet in _facets()]
        if jobs is not None:
            stored_counts = stored_counts.where(counts.job_id.in_(jobs))
            new_counts = [query.where(Measurement.job_id.in_(jobs)) for query in new_counts]
        return union_all(stored_counts, *new_counts).subquery()

    def _mark(self) -> int:
        return self.session.scalar(select(func.max(MeasurementCount.upto))) or 0

    def _add(self, facet: str, sign: int, *which: ColumnElement[bool]) -> None:
        insert = self.insert(MeasurementCount)
        new, upto = insert.excluded, MeasurementCount.upto
        rows = _grouped(facet, sign).add_columns(func.max(Measurement.id)).where(*which)
        updates = {
            "rows": MeasurementCount.rows + new.rows,
            "upto": case((new.upto > upto, new.upto), else_=upto),
        }
        upsert = insert.from_select([*_KEY, "rows", "upto"], rows)
        self.changed(upsert.on_conflict_do_update(index_elements=_KEY, set_=updates))


def _facets() -> dict[str, ColumnElement[str]]:
    """Return the facets that are counted, each separately: one count per job and task, or job and day."""
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
    """SQL function: the number of full days since the epoch."""

    type = Integer()
    inherit_cache = True


@compiles(days_since_epoch, "postgresql")
def _postgres_days(element: days_since_epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return f"floor({compiler.process(element.clauses, **kw)} / {DAY_SEC})::integer"


@compiles(days_since_epoch, "sqlite")
def _sqlite_days(element: days_since_epoch, compiler: SQLCompiler, **kw: Any) -> str:
    return f"cast({compiler.process(element.clauses, **kw)} / {DAY_SEC} as integer)"
