"""Processes that are one version newer or older than the others: what they write has other keys."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from pydantic import BaseModel

from mallorn.core.job_options import JobOptions
from mallorn.core.values.event import JobEvent
from mallorn.db.repositories.jobs import Jobs
from mallorn.db.tables.base import ValueType
from mallorn.workers.host import code_digest
from tests.simulation.loom import Loom

#: What the next version will have thought of.
NEXT: Final = "that_the_next_version_knows"


@contextmanager
def versions_mixed(loom: Loom) -> Iterator[None]:
    """Whatever is stored as JSON is as the version of the process writes it that runs then."""
    bind, create, payload = ValueType.process_bind_param, Jobs.create, JobEvent.payload

    def bound(self: ValueType[Any], value: Any, dialect: Any) -> Any:
        return _as_written(bind(self, value, dialect), self.kind, _version(loom))

    def created(self: Jobs, new: Any, *more: Any, **named: Any) -> Any:
        new.options.update(_as_written(dict(new.options), JobOptions, max(_version(loom), 0)))
        return create(self, new, *more, **named)

    def told(self: JobEvent) -> dict[str, Any]:
        return _as_written(payload(self), type(self), _version(loom))  # type: ignore[no-any-return]

    with ExitStack() as stack:
        # Each version generates other code.
        stack.enter_context(
            patch.object(code_digest, "code_parts", lambda: {"version": str(loom.process.code)})
        )
        # An option that nobody in here knows would be waited for without end.
        stack.enter_context(patch("mallorn.core.job_options.RETIRED", frozenset({NEXT})))
        stack.enter_context(patch.object(ValueType, "process_bind_param", bound))
        stack.enter_context(patch.object(Jobs, "create", created))
        stack.enter_context(patch.object(JobEvent, "payload", told))
        yield


def _version(loom: Loom) -> int:
    return 0 if loom.running is None else loom.process.host.version


def _as_written(stored: Any, kind: Any, version: int) -> Any:
    """JSON of a value by a version: a newer one adds a key, an older one leaves out what is as usual."""
    if isinstance(stored, list):
        return [_as_written(each, None, version) for each in stored]
    if not isinstance(stored, dict) or version == 0:
        return stored
    if version > 0:
        return stored | {NEXT: ["more"]}
    usual = kind.model_fields if isinstance(kind, type) and issubclass(kind, BaseModel) else {}
    return {key: value for key, value in stored.items() if key not in usual or value != usual[key].default}
