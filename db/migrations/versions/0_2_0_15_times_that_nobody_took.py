"""Deletes the times of 0.1 us that finishes without trials stored for schedules that they had not timed"""

import logging
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.15"
down_revision: str | None = "0.2.0.14"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

UNTIMED_US = 0.1
AT_A_TIME = 500
log = logging.getLogger(__name__)


def upgrade() -> None:
    found, schedules = _measurements(), sa.table("schedules", sa.column("measurement_id"))
    connection, counts = op.get_bind(), _counts()
    alike = found.c.kind.in_(("finish", "foreign_finish")), found.c.origin.like("inside:%")
    untimed = found.c.run_us == struct.pack("<f", UNTIMED_US)
    rows = connection.execute(sa.select(found).where(*alike, untimed)).all()
    mark = connection.scalar(sa.select(sa.func.max(counts.c.upto))) or 0
    for (job_id, facet, name), count in Counter(_counted(rows, mark)).items():
        same = counts.c.job_id == job_id, counts.c.facet == facet, counts.c.name == name
        op.execute(sa.update(counts).where(*same).values(rows=counts.c.rows - count))
    ids, promoted = [row.id for row in rows], 0
    for start in range(0, len(ids), AT_A_TIME):
        some = ids[start : start + AT_A_TIME]
        promoted += connection.execute(
            sa.delete(schedules).where(schedules.c.measurement_id.in_(some))
        ).rowcount
        connection.execute(sa.delete(found).where(found.c.id.in_(some)))
    _correct_reports(connection, {row.job_id for row in rows if row.job_id})
    if rows:
        log.warning(
            "deleted %d times that were not measured, and %d schedules with them", len(rows), promoted
        )


def _counted(rows: Sequence[sa.Row[Any]], mark: int) -> list[tuple[str, str, str]]:
    """What statistics have counted of these rows, as the counts name it."""
    return [
        (row.job_id or "", facet, str(name))
        for row in rows
        if row.id <= mark
        for facet, name in {
            "target": row.target_id,
            "workload": row.workload_id,
            "outcome": row.outcome,
            "kind": row.kind,
            "day": int(row.created_at // 86400),
        }.items()
    ]


def _correct_reports(connection: sa.Connection, job_ids: set[str]) -> None:
    """Take the same times out of the reports of these jobs, and name their tasks there."""
    as_json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    jobs = sa.table("jobs", sa.column("id", sa.String), sa.column("report", as_json))
    for job_id in sorted(job_ids):
        report = connection.scalar(sa.select(jobs.c.report).where(jobs.c.id == job_id)) or {}
        untimed = [name for name, us in report.get("tasks_us", {}).items() if us == UNTIMED_US]
        if untimed:
            timed = {name: us for name, us in report["tasks_us"].items() if us != UNTIMED_US}
            changed = report | {"tasks_us": timed, "without_time": untimed}
            connection.execute(sa.update(jobs).where(jobs.c.id == job_id).values(report=changed))


def _measurements() -> sa.TableClause:
    names = "job_id", "target_id", "workload_id", "outcome", "kind", "origin", "created_at"
    return sa.table(
        "measurements",
        sa.column("id", sa.BigInteger),
        sa.column("run_us", sa.LargeBinary),
        *map(sa.column, names),
    )


def _counts() -> sa.TableClause:
    columns = ("job_id", sa.String), ("facet", sa.String), ("name", sa.String)
    return sa.table(
        "measurement_counts",
        *(sa.column(name, kind) for name, kind in columns),
        sa.column("rows", sa.BigInteger),
        sa.column("upto", sa.BigInteger),
    )
