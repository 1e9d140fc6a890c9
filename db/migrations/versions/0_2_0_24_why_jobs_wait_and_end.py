"""A job has columns of their own for why it waits, why it ended, a hint, its step and a bench"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.24"
down_revision: str | None = "0.2.0.23"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

TEXTS = ("waiting_because", "ended_because", "hint")
FINAL = ("done", "failed", "cancelled")


def upgrade() -> None:
    for name in TEXTS:
        op.add_column("jobs", sa.Column(name, sa.String(), nullable=False, server_default=""))
    op.add_column("jobs", sa.Column("step", sa.JSON().with_variant(postgresql.JSONB(), "postgresql")))
    op.add_column("jobs", sa.Column("is_bench", sa.Boolean(), nullable=False, server_default=sa.false()))
    split_reasons()
    op.drop_column("jobs", "reason")
    op.drop_column("jobs", "cause_detail")


def split_reasons() -> None:
    """Copy each reason's first line to the column that the job's state names, the rest to `hint`."""
    jobs = sa.table("jobs", *map(sa.column, ("state", "reason", *TEXTS)))
    position = sa.func.strpos if op.get_bind().dialect.name == "postgresql" else sa.func.instr
    line_end = position(jobs.c.reason, "\n")
    first_line = sa.case((line_end > 0, sa.func.substr(jobs.c.reason, 1, line_end - 1)), else_=jobs.c.reason)
    rest = sa.case((line_end > 0, sa.func.substr(jobs.c.reason, line_end + 1)), else_="")
    has_ended = jobs.c.state.in_(FINAL)
    columns = {
        "waiting_because": sa.case((has_ended, ""), else_=first_line),
        "ended_because": sa.case((has_ended, first_line), else_=""),
        "hint": rest,
    }
    op.execute(sa.update(jobs).where(jobs.c.reason != "").values(columns))
