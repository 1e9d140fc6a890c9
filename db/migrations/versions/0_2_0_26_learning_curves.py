"""What plans need of closed rounds is stored: a task's totals, and a workload's learning curve"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.26"
down_revision: str | None = "0.2.0.25"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    """Add indexes, and empty columns and tables: the first plan of a job computes their values."""
    op.add_column("tasks", sa.Column("closed", JSON))
    op.add_column("rounds", sa.Column("settled", sa.Boolean(), server_default=sa.false(), nullable=False))
    op.create_table(
        "learning_curves",
        sa.Column("workload_id", ID, nullable=False),
        sa.Column("target_id", ID, nullable=False),
        sa.Column("context_id", ID, nullable=False),
        sa.Column("scope", sa.String(), nullable=False),
        sa.Column("points", sa.LargeBinary(), nullable=False),
        sa.Column("timed_trials", ID, nullable=False),
        sa.Column("timed_sec", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_learning_curves_workload_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_learning_curves_target_id"),
        sa.PrimaryKeyConstraint("workload_id", "target_id", "context_id", "scope", name="pk_learning_curves"),
    )
    create_partial_index("ix_rounds_unsettled", "rounds", ["workload_id", "target_id"], "not settled")
    op.create_index("ix_rounds_job_finished", "rounds", ["job_id", "finished_at"])
    op.create_index("ix_rounds_target_finished", "rounds", ["target_id", "finished_at"])
    for table in ("devices", "workers"):
        op.add_column(table, sa.Column("changed_at", sa.Float(53)))
    times = ["workload_id", "target_id", "latency_us"]
    create_partial_index("ix_measurements_finish", "measurements", times, "kind = 'finish'")
    op.create_index("ix_measurements_candidate", "measurements", ["sketch_id", "decisions"])


def create_partial_index(name: str, table: str, columns: Sequence[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, table, list(columns), sqlite_where=where, postgresql_where=where)
