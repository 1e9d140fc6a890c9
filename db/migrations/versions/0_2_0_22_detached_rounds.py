"""A detached round keeps only its own job from its workload"""

from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.22"
down_revision: str | None = "0.2.0.21"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None
IN_FLIGHT = sa.text("state in ('queued', 'leased') and not detached")


def upgrade() -> None:
    op.add_column("rounds", sa.Column("detached", sa.Boolean(), server_default=sa.false(), nullable=False))
    json = sa.JSON().with_variant(postgresql.JSONB(), "postgresql")
    jobs = sa.table("jobs", sa.column("id"), sa.column("options", json))
    rounds = sa.table("rounds", sa.column("job_id"), sa.column("detached"))
    detached = sa.select(jobs.c.id).where(jobs.c.options["measurer"].as_string() == "detached")
    op.execute(rounds.update().where(rounds.c.job_id.in_(detached)).values(detached=sa.true()))
    op.drop_index("uq_rounds_in_flight", "rounds")
    op.create_index(
        "uq_rounds_in_flight",
        "rounds",
        ["workload_id", "target_id"],
        unique=True,
        sqlite_where=IN_FLIGHT,
        postgresql_where=IN_FLIGHT,
    )
