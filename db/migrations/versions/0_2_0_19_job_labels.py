"""Labels of jobs; indexes of the list of jobs by time and by model"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.19"
down_revision: str | None = "0.2.0.18"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "job_labels",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.String(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_job_labels_job_id"),
        sa.PrimaryKeyConstraint("job_id", "key", name="pk_job_labels"),
    )
    op.create_index("ix_job_labels_key", "job_labels", ["key", "value", "job_id"])
    op.create_index("ix_jobs_created", "jobs", ["created_at"])
    op.create_index("ix_jobs_model", "jobs", ["model_id"])
