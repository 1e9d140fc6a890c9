"""Measuring contexts: what must be equal for two times to compare."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from db.repositories.base import Repository
from db.tables import Context


class Contexts(Repository):
    """Contexts, each stored once under the hash of its fields."""

    def ensure(
        self, target_id: int, host_class: str, tvm_version: str, threads: int, evaluator: Mapping[str, object]
    ) -> Context:
        """The context with these fields, written if it is new."""
        fields = {
            "target_id": target_id,
            "host_class": host_class,
            "tvm_version": tvm_version,
            "threads": threads,
            "evaluator": evaluator,
        }
        key = _key(fields)
        once = self.insert(Context).values(key=key, **fields)
        self.session.execute(once.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(select(Context).where(Context.key == key)).one()

    def ensure_timed_as(self, other: Context, evaluator: Mapping[str, object]) -> Context:
        """The context that differs from another one in how it is timed, written if it is new."""
        return self.ensure(**_fields(other) | {"evaluator": evaluator})

    def timed_as(self, other: Context, evaluator: Mapping[str, object]) -> Context | None:
        """The same; None where nothing was timed so."""
        key = _key(_fields(other) | {"evaluator": evaluator})
        return self.session.scalars(select(Context).where(Context.key == key)).one_or_none()

    def get(self, context_id: int) -> Context:
        """A context whose id came from the database."""
        return self.session.get_one(Context, context_id)


def _fields(found: Context) -> dict[str, Any]:
    names = "target_id", "host_class", "tvm_version", "threads", "evaluator"
    return {name: getattr(found, name) for name in names}


def _key(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
