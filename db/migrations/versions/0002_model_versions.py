"""which version of a cost model is active, and which snapshot it learned from"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ACTIVE = sa.text("active")
# Until now the newest version of a line was what new rounds took.
NEWEST = """
UPDATE cost_models SET active = true WHERE version = (
    SELECT max(same.version) FROM cost_models AS same
    WHERE same.family = cost_models.family
    AND same.target_id = cost_models.target_id
    AND same.name = cost_models.name
)
"""


def upgrade() -> None:
    op.add_column("cost_models", sa.Column("snapshot", sa.String(), nullable=True))
    op.add_column("cost_models", sa.Column("active", sa.Boolean(), nullable=False, server_default=sa.false()))
    op.execute(NEWEST)
    op.create_index(
        "uq_cost_models_active",
        "cost_models",
        ["family", "target_id", "name"],
        unique=True,
        sqlite_where=ACTIVE,
        postgresql_where=ACTIVE,
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
