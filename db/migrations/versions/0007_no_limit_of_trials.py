"""jobs whose trials have no limit but their minutes"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0007"
down_revision: str | None = "0006"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    with op.batch_alter_table("jobs") as jobs:
        jobs.alter_column("trials", existing_type=sa.Integer(), nullable=True)


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
