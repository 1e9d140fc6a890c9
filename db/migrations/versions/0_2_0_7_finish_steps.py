"""What a finish has decided so far, task by task"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.7"
down_revision: str | None = "0.2.0.6"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    op.create_table(
        "finish_steps",
        sa.Column("task_id", ID, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("trials", sa.Integer(), nullable=False),
        sa.Column("decided", JSON, nullable=False),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_finish_steps_task_id"),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_finish_steps_job_id"),
        sa.PrimaryKeyConstraint("task_id", name="pk_finish_steps"),
    )
    op.create_index("ix_finish_steps_job", "finish_steps", ["job_id"])
