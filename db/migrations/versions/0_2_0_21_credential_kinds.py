"""Browser sessions and login codes have tables of their own; browsers sign in again"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

from mallorn.db.database_clock import now

revision: str = "0.2.0.21"
down_revision: str | None = "0.2.0.20"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    time = sa.Float(53)
    # A row may be a code whose challenge was chosen to be a key's digest, so none is converted.
    op.drop_table("sign_ins")
    op.create_table(
        "browser_sessions",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("page_digest", sa.String(), nullable=False),
        sa.Column("key_id", sa.String()),
        sa.Column("key_digest", sa.String()),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("scopes", json, nullable=False),
        sa.Column("created_at", time, server_default=now(), nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_browser_sessions"),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name="fk_browser_sessions_key_id"),
    )
    op.create_index("ix_browser_sessions_expires_at", "browser_sessions", ["expires_at"])
    op.create_index("ix_browser_sessions_owner", "browser_sessions", ["owner"])
    op.create_table(
        "login_codes",
        sa.Column("digest", sa.String(), nullable=False),
        sa.Column("owner", sa.String(), nullable=False),
        sa.Column("scopes", json, nullable=False),
        sa.Column("expires_at", time, nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_login_codes"),
    )
    op.create_index("ix_login_codes_expires_at", "login_codes", ["expires_at"])
