"""Lists of any length in a query, as one parameter: Postgres takes 65,535 in a statement, SQLite 32,766."""

import json
from collections.abc import Iterable
from typing import Any

from sqlalchemy import BigInteger, Boolean, ColumnElement, Dialect, String, bindparam
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import InstrumentedAttribute
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement
from sqlalchemy.types import TypeDecorator, TypeEngine


class _ListOf(TypeDecorator[list[Any]]):
    """An array where the database has them, else JSON."""

    impl = String
    cache_ok = True

    def __init__(self, item: type[TypeEngine[Any]]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        array: TypeEngine[Any] = ARRAY(self.item) if dialect.name == "postgresql" else String()
        return dialect.type_descriptor(array)

    def process_bind_param(self, value: list[Any] | None, dialect: Dialect) -> Any:
        return value if dialect.name == "postgresql" else json.dumps(value)


class _among(FunctionElement[bool]):
    type = Boolean()
    inherit_cache = True


@compiles(_among, "postgresql")
def _postgres(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} = ANY ({values})"


@compiles(_among, "sqlite")
def _sqlite(element: _among, compiler: SQLCompiler, **kw: Any) -> str:
    column, values = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({values}))"  # noqa: S608 - of our own words


def among(column: InstrumentedAttribute[Any], values: Iterable[object]) -> ColumnElement[bool]:
    """Whether a column of numbers or words is one of these."""
    kind = _ListOf(BigInteger if column.type.python_type is int else String)
    return _among(column, bindparam(None, list(values), type_=kind, unique=True))
