"""How often work lost its holder to a kill, apart from how often it broke off by itself"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.3"
down_revision: str | None = "0.2.0.2"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("held_work", sa.Column("deaths", sa.Integer(), server_default="0", nullable=False))
