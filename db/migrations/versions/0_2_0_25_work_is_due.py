"""Workers claim work that is due and whose toolchain they have"""

import json
from collections.abc import Sequence

import sqlalchemy as sa
from alembic import op

revision: str = "0.2.0.25"
down_revision: str | None = "0.2.0.24"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

INDEX = "ix_held_work_waiting"


def upgrade() -> None:
    op.drop_index(INDEX, "held_work")
    op.execute("ALTER TABLE held_work RENAME COLUMN sent_at TO due_at")
    condition = sa.text("until is null and due_at is not null")
    op.create_index(INDEX, "held_work", ["due_at"], postgresql_where=condition, sqlite_where=condition)
    op.add_column("targets", sa.Column("toolchain", sa.String(), nullable=False, server_default="native"))
    targets = sa.table("targets", sa.column("id"), sa.column("text"), sa.column("toolchain"))
    for target_id, text in op.get_bind().execute(sa.select(targets.c.id, targets.c.text)).all():
        row = sa.update(targets).where(targets.c.id == target_id)
        op.execute(row.values(toolchain=toolchain_of(json.loads(text))))


def toolchain_of(target: dict[str, str]) -> str:
    """Return a target's toolchain as this version names it."""
    if target.get("kind") == "cuda":
        return "cuda"
    instruction_set = target.get("mtriple", "").partition("-")[0]
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(instruction_set, instruction_set) or "native"
