"""what went wrong in a job without ending it"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision: str = "0005"
down_revision: str | None = "0004"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

JSON_LIST = sa.JSON().with_variant(JSONB(), "postgresql")


def upgrade() -> None:
    op.add_column("jobs", sa.Column("warnings", JSON_LIST, server_default="[]", nullable=False))


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
