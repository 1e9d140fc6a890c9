"""state of jobs that only words and the event log told"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0008"
down_revision: str | None = "0007"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

JSON = sa.JSON().with_variant(JSONB(), "postgresql")
JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("state", sa.String()),
    sa.column("reason", sa.String()),
    sa.column("cause", sa.String()),
    sa.column("cause_detail", sa.String()),
    sa.column("tuning_ended", sa.String()),
    sa.column("suggest", JSON),
)
EVENTS = sa.table(
    "events",
    sa.column("job_id", sa.String()),
    sa.column("seq", sa.Integer()),
    sa.column("kind", sa.String()),
    sa.column("payload", JSON),
)
NOT_HERE = ": this machine cannot run it, "


def upgrade() -> None:
    op.add_column("jobs", sa.Column("cause", sa.String(), server_default="other", nullable=False))
    for name in ("cause_detail", "tuning_ended"):
        op.add_column("jobs", sa.Column(name, sa.String(), server_default="", nullable=False))
    op.add_column("jobs", sa.Column("suggest", JSON, nullable=True))
    _read_reasons()
    _read_events("finishing", JOBS.c.tuning_ended, "why")
    _read_events("failed", JOBS.c.suggest, "suggest")


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")


def _read_reasons() -> None:
    """Until now these very words said it."""
    by_owner = JOBS.c.state == "paused", JOBS.c.reason == "paused by its owner"
    op.execute(sa.update(JOBS).where(*by_owner).values(cause="owner"))
    patterns = "waits for a device for %", "waited % for a device for %"
    waiting = JOBS.c.state.not_in(("done", "failed", "cancelled"))
    told = sa.or_(*(JOBS.c.reason.like(pattern) for pattern in patterns))
    for job_id, reason in (
        op.get_bind().execute(sa.select(JOBS.c.id, JOBS.c.reason).where(waiting, told)).all()
    ):
        _, _, detail = reason.partition("\n")[0].partition(NOT_HERE)
        known = {"cause": "not_here" if detail else "no_device", "cause_detail": detail}
        op.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values(known))


def _read_events(kind: str, column: sa.ColumnClause[Any], name: str) -> None:
    """The newest event of a kind had it."""
    query = sa.select(EVENTS.c.job_id, EVENTS.c.payload).where(EVENTS.c.kind == kind).order_by(EVENTS.c.seq)
    newest = {job_id: payload.get(name) for job_id, payload in op.get_bind().execute(query)}
    for job_id, value in newest.items():
        if value:
            op.execute(sa.update(JOBS).where(JOBS.c.id == job_id).values({column.name: value}))
