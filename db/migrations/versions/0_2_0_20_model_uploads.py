"""Unfinished uploads of models in parts"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

from mallorn.db.database_clock import now

revision: str = "0.2.0.20"
down_revision: str | None = "0.2.0.19"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BYTES = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "model_uploads",
        *(sa.Column(name, sa.String(), nullable=False) for name in ("id", "owner", "model_id", "name")),
        *(sa.Column(name, BYTES, nullable=False) for name in ("size_bytes", "part_bytes")),
        sa.Column("updated_at", sa.Float(53), server_default=now(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_model_uploads"),
        sa.UniqueConstraint("owner", "model_id", name="uq_model_uploads_owner_model_id"),
    )
    op.create_index("ix_model_uploads_updated", "model_uploads", ["updated_at"])
