"""Columns that hold values of mallorn.core.values as JSON."""

from typing import Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import Dialect
from sqlalchemy.types import TypeDecorator

from db.tables.base import JsonType

Kind = TypeVar("Kind")


class ValueType(TypeDecorator[Kind]):
    """A value, or a list of values: what was set is stored; what is stored is read whatever version wrote it.

    Storing a key that the value does not know raises: the next reader would lose it.
    """

    impl = JsonType
    cache_ok = True

    def __init__(self, kind: type[Kind]) -> None:
        super().__init__()
        self.kind = kind
        self._adapter: TypeAdapter[Kind] = TypeAdapter(kind)

    def process_bind_param(self, value: Kind | None, dialect: Dialect) -> Any:
        if value is None:
            return None
        known = self._adapter.validate_python(value, extra="forbid")
        return self._adapter.dump_python(known, mode="json", exclude_unset=True)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Kind | None:
        return None if value is None else self._adapter.validate_python(value)
