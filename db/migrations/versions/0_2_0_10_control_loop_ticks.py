"""When the loops that must live last had a turn"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.10"
down_revision: str | None = "0.2.0.9"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "ticks",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("begun_at", sa.Float(53), nullable=False),
        sa.Column("since", sa.Float(53), nullable=False),
        sa.Column("done_at", sa.Float(53)),
        sa.PrimaryKeyConstraint("name", name="pk_ticks"),
    )
