"""API keys, and sign-ins of browsers"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from mallorn.db.database_clock import now

revision: str = "0.2.0.4"
down_revision: str | None = "0.2.0.3"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    time = sa.Float(53)
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("scopes", json, nullable=False),
        sa.Column("created_at", time, server_default=now(), nullable=False),
        sa.Column("expires_at", time),
        sa.Column("last_used_at", time),
        sa.Column("revoked_at", time),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        sa.UniqueConstraint("digest", name="uq_api_keys_digest"),
    )
    op.create_index("ix_api_keys_owner", "api_keys", ["owner"])
    op.create_table(
        "sign_ins",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("key_digest", sa.String()),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("scopes", json, nullable=False),
        sa.Column("created_at", time, server_default=now(), nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_sign_ins"),
    )
    op.create_index("ix_sign_ins_expires_at", "sign_ins", ["expires_at"])
