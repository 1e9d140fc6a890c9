"""Who did what"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from mallorn.db.database_clock import now

revision: str = "0.2.0.5"
down_revision: str | None = "0.2.0.4"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.create_table(
        "audit",
        sa.Column(
            "id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False
        ),
        sa.Column("at", sa.Float(53), server_default=now(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("key_id", sa.String(), nullable=False),
        sa.Column("method", sa.String(), nullable=False),
        sa.Column("path", sa.String(), nullable=False),
        sa.Column("status", sa.SmallInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    op.create_index("ix_audit_owner_id", "audit", ["owner", "id"])
    op.create_index("ix_audit_at", "audit", ["at"])
