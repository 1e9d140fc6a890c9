"""Measuring contexts of accelerators name how kernels are launched and when the cache is emptied"""

import hashlib
import json
from collections.abc import Mapping, Sequence

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision: str = "0.2.0.28"
down_revision: str | None = "0.2.0.27"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

ON_CORES = ("llvm", "c")
VIRTUAL_DEVICES = ("replay", "simulated")
AUTO = "cold if an input has 0.75 of all bytes"


def upgrade() -> None:
    """All earlier times on accelerators were taken by eager launches; `warm` stood for `auto`."""
    names = "id", "key", "target_id", "host_class", "tvm_version", "built_by", "threads"
    evaluator = sa.column("evaluator", sa.JSON().with_variant(postgresql.JSONB(), "postgresql"))
    contexts = sa.table("contexts", *(sa.column(name) for name in names), evaluator)
    targets = sa.table("targets", sa.column("id"), sa.column("text"))
    query = sa.select(contexts, targets.c.text).where(contexts.c.target_id == targets.c.id)
    for row in op.get_bind().execute(query).mappings().all():
        timing, target = row["evaluator"], json.loads(row["text"])
        is_virtual = target.get("device") in VIRTUAL_DEVICES
        if target.get("kind") in ON_CORES or is_virtual or "cache" not in timing:
            continue
        cache = AUTO if timing["cache"] == "warm" else timing["cache"]
        named = {**timing, "launch": "eager", "cache": cache}
        key = key_of({**row, "evaluator": named})
        op.execute(sa.update(contexts).where(contexts.c.id == row["id"]).values(evaluator=named, key=key))


def key_of(row: Mapping[str, object]) -> str:
    """Return the hash of a context's fields as this version computes it."""
    names = "target_id", "host_class", "tvm_version", "threads", "evaluator"
    fields = {name: row[name] for name in names}
    if row["built_by"] not in (None, row["tvm_version"]):
        fields["built_by"] = row["built_by"]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
