"""Which code extracted a workload here, and which sketches came from elsewhere"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.16"
down_revision: str | None = "0.2.0.15"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("workloads", sa.Column("code", sa.String()))
    # Nobody knows of old ones: they are written anew when a round here proposes them.
    op.add_column("sketches", sa.Column("imported", sa.Boolean(), nullable=False, server_default=sa.true()))
