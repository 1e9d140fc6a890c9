"""Whose TVM built what was timed in a measuring context"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.13"
down_revision: str | None = "0.2.0.12"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("contexts", sa.Column("built_by", sa.String()))
