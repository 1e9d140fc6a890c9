"""Deletes the times of 0.1 us that finishes without trials stored for schedules that they had not timed"""

import logging
import struct
from collections import Counter
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.15"
down_revision: str | None = "0.2.0.14"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

UNTIMED_US = 0.1
AT_A_TIME = 500
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
NAMES = "id", "job_id", "target_id", "workload_id", "outcome", "kind", "origin", "created_at"
ROWS = sa.table("measurements", *map(sa.column, NAMES), sa.column("run_us", sa.LargeBinary))
SCHEDULES = sa.table("schedules", sa.column("measurement_id"))
COUNTS = sa.table("measurement_counts", *map(sa.column, ("job_id", "facet", "name", "rows", "upto")))
JOBS = sa.table("jobs", sa.column("id"), sa.column("report", JSON))
log = logging.getLogger(__name__)


def upgrade() -> None:
    found, connection, promoted = ROWS.c, op.get_bind(), 0
    inside = found.kind.in_(("finish", "foreign_finish")), found.origin.like("inside:%")
    untimed = found.run_us == struct.pack("<f", UNTIMED_US)
    rows = connection.execute(sa.select(ROWS).where(*inside, untimed)).all()
    counted = Counter[tuple[str, str, str]]()
    mark = connection.scalar(sa.select(sa.func.max(COUNTS.c.upto))) or 0
    for row in rows:
        if row.id <= mark:  # statistics count it already
            facets = {name: getattr(row, name) for name in ("outcome", "kind")}
            facets |= {
                "target": row.target_id,
                "workload": row.workload_id,
                "day": int(row.created_at // 86400),
            }
            counted.update((row.job_id or "", facet, str(name)) for facet, name in facets.items())
    for (job_id, facet, name), count in counted.items():
        same = COUNTS.c.job_id == job_id, COUNTS.c.facet == facet, COUNTS.c.name == name
        connection.execute(sa.update(COUNTS).where(*same).values(rows=COUNTS.c.rows - count))
    for start in range(0, len(rows), AT_A_TIME):
        ids = [row.id for row in rows[start : start + AT_A_TIME]]
        promoted += connection.execute(
            sa.delete(SCHEDULES).where(SCHEDULES.c.measurement_id.in_(ids))
        ).rowcount
        connection.execute(sa.delete(ROWS).where(found.id.in_(ids)))
    for job_id in sorted({row.job_id for row in rows if row.job_id}):
        report = connection.scalar(sa.select(JOBS.c.report).where(JOBS.c.id == job_id)) or {}
        tasks_us = report.get("tasks_us", {})
        timed = {name: us for name, us in tasks_us.items() if us != UNTIMED_US}
        if not (gone := sorted(tasks_us.keys() - timed.keys())):
            continue
        changed = report | {"tasks_us": timed, "without_time": gone}
        connection.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(report=changed))
    if rows:
        log.warning(
            "deleted %d times that were not measured, and %d schedules with them", len(rows), promoted
        )
