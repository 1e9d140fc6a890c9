"""what workers did besides rounds: imports, trainings, finishes"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from db.clock import now

revision: str = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "stage_runs",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("worker", sa.String(), nullable=False),
        sa.Column("started_at", sa.Float(53), server_default=now(), nullable=False),
        sa.Column("finished_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_stage_runs_job_id"),
        sa.PrimaryKeyConstraint("id", name="pk_stage_runs"),
    )
    op.create_index("ix_stage_runs_started", "stage_runs", ["started_at"])


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
