"""The secret before a key's last rotation, and owners who were put out"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from mallorn.db.database_clock import now

revision: str = "0.2.0.9"
down_revision: str | None = "0.2.0.8"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("api_keys", sa.Column("previous_digest", sa.String()))
    op.add_column("api_keys", sa.Column("previous_until", sa.Float(53)))
    op.create_index("ix_api_keys_previous_digest", "api_keys", ["previous_digest"])
    op.create_table(
        "put_out",
        sa.Column("owner_digest", sa.String(), nullable=False),
        sa.Column("at", sa.Float(53), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("owner_digest", name="pk_put_out"),
    )
