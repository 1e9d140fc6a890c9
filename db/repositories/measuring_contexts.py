"""Measuring contexts: the facts that must be equal for two times to be comparable."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import exists, func, select

from mallorn.db.repositories.base import Repository
from mallorn.db.repositories.devices import machine_key_of
from mallorn.db.repositories.measurement_filters import IMPORTED
from mallorn.db.tables import Context, Measurement


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
        """Return the context with these fields; insert it if it is new.

        `built_by` is the builder's TVM version and code digest; None if not reported.
        """
        machine = {"target_id": target_id, "host_class": host_class, "threads": threads}
        fields: dict[str, object] = {**machine, "tvm_version": tvm_version, "evaluator": evaluator}
        if built_by not in (None, tvm_version):  # otherwise the key equals that of older versions
            fields["built_by"] = built_by
        key = _key(fields)
        row = select(Context).where(Context.key == key)
        if (existing := self.session.scalars(row).one_or_none()) is not None:
            return existing
        insert = self.insert(Context).values(key=key, **fields)
        self.session.execute(insert.on_conflict_do_nothing(index_elements=["key"]))
        return self.session.scalars(row).one()

    def ensure_like(self, context: Context, **changes: object) -> Context:
        """Return the context that differs only in `changes`, fields of `ensure`; insert it if new."""
        return self.ensure(**_fields(context) | changes)

    def list_other_builds(self, context_id: int) -> Sequence[int]:
        """Return the contexts that differ from this one only in builder or device's TVM."""
        own = self.get(context_id)
        machine = Context.target_id == own.target_id, Context.host_class == own.host_class
        query = select(Context).where(*machine, Context.threads == own.threads, Context.id != context_id)
        return [row.id for row in self.session.scalars(query) if row.evaluator == own.evaluator]

    def has_measured(self, context_id: int, job_id: str) -> bool:
        of_job = Measurement.job_id == job_id, Measurement.context_id == context_id
        return bool(self.session.scalar(select(exists().where(*of_job))))

    def find_timed_as(self, context: Context, evaluator: Mapping[str, object]) -> Context | None:
        key = _key(_fields(context) | {"evaluator": evaluator})
        return self.session.scalars(select(Context).where(Context.key == key)).one_or_none()

    def get(self, context_id: int) -> Context:
        return self.session.get_one(Context, context_id)

    def of_workload(self, workload_id: int, target_id: int, *, imported: bool = False) -> Sequence[Context]:
        """Return the contexts in which a workload was timed, the one with most times first.

        Only times measured here count, or with `imported` only imported times.
        """
        origin = Measurement.kind.in_(IMPORTED) if imported else Measurement.kind.not_in(IMPORTED)
        is_timed = func.coalesce(Measurement.latency_us, Measurement.bound_us).is_not(None)
        same_workload = Measurement.workload_id == workload_id, Measurement.target_id == target_id
        counts = (
            select(Measurement.context_id, func.count().label("rows"))
            .where(*same_workload, is_timed, origin)
            .group_by(Measurement.context_id)
            .subquery()
        )
        query = select(Context).join(counts, counts.c.context_id == Context.id)
        return self.session.scalars(query.order_by(counts.c.rows.desc(), Context.id.desc())).all()


def count_other_programs(context: Context) -> int | None:
    """Return how many programs ran during timing inside a model; None if not inside one."""
    return context.evaluator.get("beside", 0) if is_inside_model(context.evaluator) else None


def is_inside_model(evaluator: Mapping[str, object]) -> bool:
    """Return whether times were taken inside a run of the complete model."""
    return evaluator.get("cache") == "model"


def compare_contexts(left: Context, right: Context) -> tuple[bool, bool]:
    """Return whether two contexts differ in host class, threads or TVM, and in builder."""
    return machine_key_of(left) != machine_key_of(right), left.built_by != right.built_by


def _fields(context: Context) -> dict[str, Any]:
    names = "target_id", "host_class", "tvm_version", "threads", "evaluator", "built_by"
    return {name: value for name in names if (value := getattr(context, name)) is not None}


def _key(fields: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()[:16]
