"""jobs that are archived or deleted"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0006"
down_revision: str | None = "0005"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

LEFTOVERS = sa.text("deleted_at is not null and export_uri is not null")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("archived_at", sa.Float(53), nullable=True))
    op.add_column("jobs", sa.Column("deleted_at", sa.Float(53), nullable=True))
    op.create_index("ix_jobs_finished", "jobs", ["finished_at"])
    op.create_index(
        "ix_jobs_leftovers",
        "jobs",
        ["deleted_at"],
        sqlite_where=LEFTOVERS,
        postgresql_where=LEFTOVERS,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
