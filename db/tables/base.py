"""Declarative base, and the column types that all tables share.

Times are seconds since the epoch by the database's clock (mallorn.db.database_clock), so
that hosts whose clocks differ agree on leases.
"""

from typing import Annotated, Any, TypeVar

from pydantic import TypeAdapter
from sqlalchemy import JSON, BigInteger, Dialect, Float, Index, Integer, MetaData, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column
from sqlalchemy.types import TypeDecorator

from mallorn.db.database_clock import now

Kind = TypeVar("Kind")
# SQLite assigns ids only for INTEGER PRIMARY KEY.
BigId = BigInteger().with_variant(Integer(), "sqlite")
JsonType = JSON().with_variant(JSONB(), "postgresql")

IdPk = Annotated[int, mapped_column(BigId, primary_key=True, autoincrement=True)]
Json = Annotated[dict[str, Any], mapped_column(JsonType)]
Timestamp = Annotated[float, mapped_column(Float(53))]
CreatedAt = Annotated[float, mapped_column(Float(53), server_default=now(), default=now())]


class Base(DeclarativeBase):
    """Declarative base with the same constraint names on both databases, for migrations."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def partial_index(name: str, *columns: str, condition: str, unique: bool = False) -> Index:
    """Return an index over the rows that meet `condition`, in SQL that both databases read."""
    sql = text(condition)
    return Index(name, *columns, unique=unique, sqlite_where=sql, postgresql_where=sql)


class ValueType(TypeDecorator[Kind]):
    """JSON column of a pydantic value or a list of them; stores only fields that are set.

    Reading accepts the fields of any version; storing an unknown field raises.
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
        parsed_value = self._adapter.validate_python(value, extra="forbid")
        return self._adapter.dump_python(parsed_value, mode="json", exclude_unset=True)

    def process_result_value(self, value: Any | None, dialect: Dialect) -> Kind | None:
        return None if value is None else self._adapter.validate_python(value)
