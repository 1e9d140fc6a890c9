"""features of candidates that need a compiler, kept"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "feature_rows",
        sa.Column("workload_id", BIG_ID, nullable=False),
        sa.Column("target_id", BIG_ID, nullable=False),
        sa.Column("view", sa.String(), nullable=False),
        sa.Column("version", sa.SmallInteger(), nullable=False),
        sa.Column("tvm_version", sa.String(), nullable=False),
        sa.Column("candidate", sa.String(), nullable=False),
        sa.Column("numbers", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_feature_rows_target_id"),
        sa.ForeignKeyConstraint(["workload_id"], ["workloads.id"], name="fk_feature_rows_workload_id"),
        sa.PrimaryKeyConstraint(
            *("workload_id", "target_id", "view", "version", "tvm_version", "candidate"),
            name="pk_feature_rows",
        ),
    )


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")
