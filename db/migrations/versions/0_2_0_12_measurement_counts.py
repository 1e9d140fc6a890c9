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
        *(sa.Column(name, sa.String(), nullable=False) for name in ("job_id", "facet", "name")),
        *(sa.Column(name, ID, nullable=False) for name in ("rows", "upto")),
        sa.PrimaryKeyConstraint("job_id", "facet", "name", name="pk_measurement_counts"),
    )
    op.create_index("ix_measurement_counts_upto", "measurement_counts", ["upto"])
