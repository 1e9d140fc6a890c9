"""Exports that were deleted; jobs and workloads that are kept from other owners"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.6"
down_revision: str | None = "0.2.0.5"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
DROPPED = sa.text("export_deleted_at is not null and export_uri is not null")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("export_deleted_at", sa.Float(53)))
    op.add_column("jobs", sa.Column("private", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.add_column("workloads", sa.Column("kept_upto", sa.BigInteger(), server_default="0", nullable=False))
    op.create_index(
        "ix_jobs_dropped_exports",
        "jobs",
        ["export_deleted_at"],
        sqlite_where=DROPPED,
        postgresql_where=DROPPED,
    )
