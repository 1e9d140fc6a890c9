"""Deleted jobs that measured nothing are found, so that they go; the audit log says whose key was changed"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.18"
down_revision: str | None = "0.2.0.17"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    few = sa.text("deleted_at is not null and context_id is null")
    op.create_index("ix_jobs_unmeasured", "jobs", ["deleted_at"], sqlite_where=few, postgresql_where=few)
    for name in ("subject", "detail"):
        op.add_column("audit", sa.Column(name, sa.String(), server_default="", nullable=False))
    op.create_index("ix_audit_subject_id", "audit", ["subject", "id"])
