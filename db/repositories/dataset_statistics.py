"""Statistics of the dataset, from stored counts and the rows added since (ADR 0050)."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import (
    ColumnElement,
    Integer,
    Row,
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

from mallorn.core.outcomes import LEFT_UNBUILT
from mallorn.core.values.dataset import DatasetStats, DayCount, NamedCount
from mallorn.db.database_clock import now
from mallorn.db.repositories.base import Repository, is_owned_by
from mallorn.db.repositories.measurement_filters import IMPORTED, was_left_unbuilt
from mallorn.db.tables import (
    ForeignRecord,
    ForeignTask,
    Job,
    Measurement,
    MeasurementCount,
    Model,
    TargetRow,
    Workload,
)

DAY_SEC: Final = 86400
COUNTS: Final = "measurement counts"  # name of the lock for changes of the counts
# Longer than any transaction that writes measurements: they get ids before the commit.
SETTLED_SEC: Final = 600.0
AT_A_TIME: Final = 1_000_000  # rows counted by one call, in a second or two
_KEY: Final = "job_id", "facet", "name"
OUTCOME: Final = "outcome"


class Counts(Repository):
    """Counts of measurements by job, by property such as the outcome, and by its value.

    Counts up to a mark, the id of a row, are stored; later rows are counted when read.
    """

    def count_new_rows(self, settled_sec: float = SETTLED_SEC) -> int:
        """Add rows older than `settled_sec` to the stored counts. Return by how many ids
        the mark, up to which rows are counted, has advanced."""
        self.lock_name(COUNTS)
        mark = self._read_mark()
        rows = select(Measurement.id, Measurement.created_at).order_by(Measurement.id)
        next_rows = rows.where(Measurement.id > mark).limit(AT_A_TIME).subquery().c
        unsettled_id = case((next_rows.created_at > now() - settled_sec, next_rows.id))
        last, unsettled = self.session.execute(select(func.max(next_rows.id), func.min(unsettled_id))).one()
        end = (last or mark) if unsettled is None else unsettled - 1
        for facet in _facets():
            self._add(facet, 1, Measurement.id > mark, Measurement.id <= end)
        return int(end - mark)

    def adjust_outcome_counts(self, sign: int, condition: ColumnElement[bool]) -> None:
        """Adjust the stored counts of outcomes for rows whose outcome changes.

        Call it with `sign` -1 before the change and 1 after it, and hold the lock COUNTS
        from the first call to the second.
        """
        self._add(OUTCOME, sign, condition, Measurement.id <= self._read_mark())

    def select_counts(self, jobs: Select[str] | None) -> Subquery:
        """Return counts by job, property and value, of the rows of these jobs or all."""
        counts = MeasurementCount
        stored_counts = select(counts.job_id, counts.facet, counts.name, counts.rows)
        mark = self._read_mark()
        new_counts = [_select_grouped_counts(facet, 1).where(Measurement.id > mark) for facet in _facets()]
        if jobs is not None:
            stored_counts = stored_counts.where(counts.job_id.in_(jobs))
            new_counts = [query.where(Measurement.job_id.in_(jobs)) for query in new_counts]
        return union_all(stored_counts, *new_counts).subquery()

    def _read_mark(self) -> int:
        return self.session.scalar(select(func.max(MeasurementCount.upto))) or 0

    def _add(self, facet: str, sign: int, *conditions: ColumnElement[bool]) -> None:
        insert = self.insert(MeasurementCount)
        new, upto = insert.excluded, MeasurementCount.upto
        rows = _select_grouped_counts(facet, sign).add_columns(func.max(Measurement.id)).where(*conditions)
        updates = {
            "rows": MeasurementCount.rows + new.rows,
            "upto": case((new.upto > upto, new.upto), else_=upto),
        }
        upsert = insert.from_select([*_KEY, "rows", "upto"], rows)
        self.execute_and_count(upsert.on_conflict_do_update(index_elements=_KEY, set_=updates))


def _facets() -> dict[str, ColumnElement[str]]:
    """Return SQL expressions of the properties by which a job's rows are counted."""
    return {
        "target": cast(Measurement.target_id, String),
        "workload": cast(Measurement.workload_id, String),
        OUTCOME: case((was_left_unbuilt(), LEFT_UNBUILT), else_=Measurement.outcome),
        "kind": Measurement.kind.expression,
        "day": cast(cast(func.floor(Measurement.created_at / DAY_SEC), Integer), String),
    }


def _select_grouped_counts(facet: str, sign: int) -> Select[str, str, str, int]:
    job = func.coalesce(Measurement.job_id, "").label("job_id")  # imported rows have none
    name = _facets()[facet].label("name")
    rows = (literal(sign) * func.count()).label("rows")
    return select(job, literal(facet).label("facet"), name, rows).group_by(job, name)


class Statistics(Repository):
    """Counts the measurements of an owner's jobs, or all measurements."""

    def of(self, owner: str | None) -> DatasetStats:
        """Return an owner's statistics; None means all rows, including imported records."""
        counts = Counts(self.session).select_counts(
            None if owner is None else select(Job.id).where(is_owned_by(owner))
        )
        # Counts by facet and name, over all jobs, without names that have no rows.
        rows_by = defaultdict[str, dict[str, int]](dict)
        facet_and_name, rows_in_all = (counts.c.facet, counts.c.name), func.sum(counts.c.rows)
        query = select(*facet_and_name, rows_in_all).group_by(*facet_and_name).having(rows_in_all > 0)
        for facet, name, rows in self.session.execute(query):
            rows_by[facet][name] = int(rows)
        workloads = {int(name): rows for name, rows in rows_by["workload"].items()}
        targets = dict(self.session.execute(select(TargetRow.id, TargetRow.text)).all())
        ops = select(Workload.id, Workload.op).where(self.is_among(Workload.id, workloads))
        total, days = 0, list[DayCount]()
        for day, count in sorted((int(day), rows) for day, rows in rows_by["day"].items()):
            total += count
            date = datetime.fromtimestamp(day * DAY_SEC, UTC).date()
            days.append(DayCount(day=date, count=count, total=total))
        foreign: list[NamedCount] = []
        if owner is None:
            records = select(ForeignTask.format, func.count(ForeignRecord.id)).join(
                ForeignRecord, ForeignRecord.task_id == ForeignTask.id
            )
            by_format = self.session.execute(records.group_by(ForeignTask.format))
            foreign = _sum_by_name(by_format.all())
        models = select(Model.id, func.min(Model.name)).group_by(Model.id)
        if owner is not None:  # other owners may use another name for the same bytes
            models = models.where(Model.owner == owner)
        names = dict(self.session.execute(models).all())
        by_model = select(Job.model_id, func.sum(counts.c.rows)).join(counts, counts.c.job_id == Job.id)
        rows = self.session.execute(by_model.where(counts.c.facet == "kind").group_by(Job.model_id))
        return DatasetStats(
            measurements=sum(rows_by["kind"].values()),
            imported_measurements=sum(rows_by["kind"].get(kind, 0) for kind in IMPORTED),
            workloads=len(workloads),
            targets=_sum_by_name((targets[int(name)], rows) for name, rows in rows_by["target"].items()),
            operators=_sum_by_name((op, workloads[row_id]) for row_id, op in self.session.execute(ops)),
            models=_sum_by_name((names.get(model_id, model_id), int(count)) for model_id, count in rows),
            outcomes=_sum_by_name(rows_by[OUTCOME].items()),
            days=days,
            foreign_records=foreign,
        )


def _sum_by_name(pairs: Iterable[tuple[str, int] | Row[str, int]]) -> list[NamedCount]:
    counter: Counter[str] = Counter()
    for name, count in pairs:
        counter[name] += count
    in_order = sorted(counter.items(), key=lambda item: (-item[1], item[0]))
    return [NamedCount(name=name, count=count) for name, count in in_order]
