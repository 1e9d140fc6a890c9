"""A decided winner holds its trial; a finish that is under way decides its tasks anew"""

from collections.abc import Sequence

from alembic import op

revision: str = "0.2.0.14"
down_revision: str | None = "0.2.0.13"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    op.execute("DELETE FROM finish_steps")
