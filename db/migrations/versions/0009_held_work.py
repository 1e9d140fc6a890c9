"""one table of all work that is held: rounds, stages, the planner's turns"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision: str = "0009"
down_revision: str | None = "0008"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

JOBS = sa.table(
    "jobs",
    sa.column("id", sa.String()),
    sa.column("state", sa.String()),
    sa.column("created_at", sa.Float(53)),
    sa.column("attempts", sa.Integer()),
    sa.column("stage_worker", sa.String()),
    sa.column("stage_lease_until", sa.Float(53)),
    sa.column("stage_losses", sa.Integer()),
    sa.column("stage_sent_at", sa.Float(53)),
)
ROUNDS = sa.table(
    "rounds",
    sa.column("id", sa.BigInteger()),
    sa.column("job_id", sa.String()),
    sa.column("state", sa.String()),
    sa.column("worker", sa.String()),
    sa.column("attempt", sa.Integer()),
    sa.column("losses", sa.Integer()),
    sa.column("lease_until", sa.Float(53)),
    sa.column("sent_at", sa.Float(53)),
)
LEASES = sa.table(
    "leases",
    sa.column("name", sa.String()),
    sa.column("holder", sa.String()),
    sa.column("token", sa.Integer()),
    sa.column("until", sa.Float(53)),
)
HELD_WORK = sa.table(
    "held_work",
    sa.column("kind", sa.String()),
    sa.column("subject", sa.String()),
    sa.column("job_id", sa.String()),
    sa.column("attempt", sa.Integer()),
    sa.column("losses", sa.Integer()),
    sa.column("holder", sa.String()),
    sa.column("until", sa.Float(53)),
    sa.column("sent_at", sa.Float(53)),
)


def upgrade() -> None:
    _make_held_work()
    _carry_over_rounds()
    _carry_over_stages("import", ("queued", "importing"))
    _carry_over_stages("finish", ("finishing",))
    _carry_over_planning()
    _drop_what_was_carried_over()


def downgrade() -> None:
    raise NotImplementedError("restore a backup: migrations here only go forward")


def _make_held_work() -> None:
    op.create_table(
        "held_work",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("subject", sa.String(), nullable=False),
        sa.Column("job_id", sa.String(), nullable=True),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("losses", sa.Integer(), nullable=False),
        sa.Column("holder", sa.String(), nullable=True),
        sa.Column("until", sa.Float(53), nullable=True),
        sa.Column("sent_at", sa.Float(53), nullable=True),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name="fk_held_work_job_id"),
        sa.PrimaryKeyConstraint("kind", "subject", name="pk_held_work"),
    )
    for name, column, where in (
        ("ix_held_work_until", "until", sa.text("until is not null")),
        ("ix_held_work_waiting", "sent_at", sa.text("until is null and sent_at is not null")),
    ):
        op.create_index(name, "held_work", [column], sqlite_where=where, postgresql_where=where)


def _carry_over(select: sa.Select[Any]) -> None:
    columns = "kind", "subject", "job_id", "attempt", "losses", "holder", "until", "sent_at"
    op.execute(sa.insert(HELD_WORK).from_select(columns, select))


def _carry_over_rounds() -> None:
    row = ROUNDS.c
    leased = row.state == "leased"
    is_open = row.state.in_(("queued", "leased"))
    _carry_over(
        sa.select(
            *(sa.literal("round"), sa.cast(row.id, sa.String()), row.job_id, row.attempt, row.losses),
            *(sa.case((leased, row.worker)), sa.case((leased, row.lease_until))),
            sa.case((is_open, row.sent_at)),
        )
    )


def _carry_over_stages(kind: str, states: Sequence[str]) -> None:
    """The one count of attempts was for both stages: the tokens of each go on growing from there."""
    row = JOBS.c
    here = row.state.in_(states)
    held = sa.and_(here, row.stage_lease_until.is_not(None))
    _carry_over(
        sa.select(
            *(sa.literal(kind), row.id, row.id, row.attempts, sa.case((here, row.stage_losses), else_=0)),
            *(sa.case((held, row.stage_worker)), sa.case((held, row.stage_lease_until))),
            sa.case((here, sa.func.coalesce(row.stage_sent_at, row.created_at))),
        )
    )


def _carry_over_planning() -> None:
    row, prefix = LEASES.c, "plan:target:"
    held = row.holder != ""
    _carry_over(
        sa.select(
            *(
                sa.literal("plan"),
                sa.func.substr(row.name, len(prefix) + 1),
                sa.null(),
                row.token,
                sa.literal(0),
            ),
            *(sa.case((held, row.holder)), sa.case((held, row.until)), sa.null()),
        ).where(row.name.like(f"{prefix}%"))
    )


def _drop_what_was_carried_over() -> None:
    op.drop_table("leases")
    op.drop_index("ix_rounds_state", "rounds")
    op.create_index("ix_rounds_state", "rounds", ["state"])
    for name in ("attempt", "losses", "lease_until", "sent_at"):
        op.drop_column("rounds", name)
    for name in ("attempts", "stage_worker", "stage_lease_until", "stage_losses", "stage_sent_at"):
        op.drop_column("jobs", name)
