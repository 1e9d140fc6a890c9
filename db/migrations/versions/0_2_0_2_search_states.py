"""What searchers keep between the rounds of a task, and which of it a round was given"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.2"
down_revision: str | None = "0.2.0.1"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "search_states",
        sa.Column("round_id", ID, nullable=False),
        sa.Column("task_id", ID, nullable=False),
        sa.Column("searcher", sa.String(), nullable=False),
        sa.Column("blob", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["round_id"], ["rounds.id"], name="fk_search_states_round_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name="fk_search_states_task_id"),
        sa.PrimaryKeyConstraint("round_id", name="pk_search_states"),
    )
    op.create_index("ix_search_states_task", "search_states", ["task_id"])
    op.add_column("rounds", sa.Column("state_from", ID, nullable=True))
