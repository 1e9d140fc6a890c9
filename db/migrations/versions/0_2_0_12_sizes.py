"""Measurements by device and, in order, by workload; how many there are; rounds by their end"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.12"
down_revision: str | None = "0.2.0.11"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_index("ix_measurements_workload", "measurements", ["workload_id", "target_id", "id"])
    op.create_index("ix_measurements_device", "measurements", ["device_id", "id"])
    op.create_index("ix_rounds_finished", "rounds", ["finished_at"])
    op.create_table(
        "measurement_counts",
        sa.Column("target_id", ID, nullable=False),
        sa.Column("workload_id", ID, nullable=False),
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("told", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("day", sa.Integer(), nullable=False),
        sa.Column("rows", ID, nullable=False),
        sa.Column("upto", ID, nullable=False),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_measurement_counts_target_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_measurement_counts_workload_id"),
        sa.PrimaryKeyConstraint(
            "target_id", "workload_id", "job_id", "told", "kind", "day", name="pk_measurement_counts"
        ),
    )
    op.create_index("ix_measurement_counts_job", "measurement_counts", ["job_id"])
    op.create_index("ix_measurement_counts_upto", "measurement_counts", ["upto"])
