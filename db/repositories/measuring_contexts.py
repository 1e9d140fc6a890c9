"""Measuring contexts: what must be equal for two times to compare."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import exists, select, update

from db.repositories.base import Repository
from db.tables import Context, Job, Measurement


class Contexts(Repository):
    """Contexts, each stored once under the hash of its fields."""

    def ensure(
        self,
        target_id: int,
        host_class: str,
        tvm_version: str,
        threads: int,
        evaluator: Mapping[str, object],
        built_by: str | None = None,
    ) -> Context:
        """The context with these fields, written if it is new; `built_by` None: by the device's TVM."""
        fields: dict[str, object] = {
            "target_id": target_id,
            "host_class": host_class,
            "tvm_version": tvm_version,
            "threads": threads,
            "evaluator": evaluator,
        }
        if built_by not in (None, tvm_version):  # else it is the context that it was before this was told
            fields["built_by"] = built_by
        key = _key(fields)
        once = self.insert(Context).values(key=key, **fields)
        self.session.execute(once.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(select(Context).where(Context.key == key)).one()

    def ensure_timed_as(self, other: Context, evaluator: Mapping[str, object]) -> Context:
        """The context that differs from another one in how it is timed, written if it is new."""
        return self.ensure(**_fields(other) | {"evaluator": evaluator})

    def rebind(self, job_id: str, was: Context, built_by: str) -> bool:
        """Give a job the context that differs in who builds; False: it has measured in its own already."""
        context_id = self.ensure(**_fields(was) | {"built_by": built_by}).id
        unmeasured = Job.id == job_id, ~exists().where(Measurement.job_id == job_id)
        return self.changed(update(Job).where(*unmeasured).values(context_id=context_id)) == 1

    def timed_as(self, other: Context, evaluator: Mapping[str, object]) -> Context | None:
        """The same; None where nothing was timed so."""
        key = _key(_fields(other) | {"evaluator": evaluator})
        return self.session.scalars(select(Context).where(Context.key == key)).one_or_none()

    def get(self, context_id: int) -> Context:
        """A context whose id came from the database."""
        return self.session.get_one(Context, context_id)


def _fields(found: Context) -> dict[str, Any]:
    names = "target_id", "host_class", "tvm_version", "threads", "evaluator", "built_by"
    return {name: value for name in names if (value := getattr(found, name)) is not None}


def _key(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
