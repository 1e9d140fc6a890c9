"""What failed to build a candidate, and the time limit under which a step of it failed"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.17"
down_revision: str | None = "0.2.0.16"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("measurements", sa.Column("built_by", sa.String()))
    op.add_column("measurements", sa.Column("limit_sec", sa.Double()))
