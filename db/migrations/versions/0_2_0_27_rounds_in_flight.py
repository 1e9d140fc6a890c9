"""Several rounds of a workload may be open, and an open round has its proposals"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.27"
down_revision: str | None = "0.2.0.26"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.drop_index("uq_rounds_in_flight", "rounds")
    op.add_column("rounds", sa.Column("proposals", sa.JSON().with_variant(postgresql.JSONB(), "postgresql")))
    op.add_column("jobs", sa.Column("wants_rounds", sa.Boolean(), server_default=sa.true(), nullable=False))
