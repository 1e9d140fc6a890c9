"""What devices compute and move, and what the candidates of a job are proposed for"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.1"
down_revision: str | None = "0.1.0"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    for table in ("devices", "jobs"):
        op.add_column(table, sa.Column("machine", JSON, nullable=True))
