"""Jobs that only read the dataset, or do not use it"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.20"
down_revision: str | None = "0.2.0.19"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
WITHHELD = sa.text("dataset <> 'write'")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("dataset", sa.String(), server_default="write", nullable=False))
    op.create_index("ix_jobs_withheld", "jobs", ["id"], sqlite_where=WITHHELD, postgresql_where=WITHHELD)
