"""What disturbed a timing, and the bound that it is then"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.8"
down_revision: str | None = "0.2.0.7"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.add_column("measurements", sa.Column("disturbed", sa.Double()))
    op.add_column("measurements", sa.Column("bound_us", sa.Double()))
