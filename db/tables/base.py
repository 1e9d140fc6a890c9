"""Declarative base and the column types all tables share.

Times are seconds since the epoch by the database's own clock (db.clock), so that hosts whose clocks
differ agree on leases.
"""

from typing import Annotated, Any

from sqlalchemy import JSON, BigInteger, Float, Integer, MetaData
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, mapped_column

from db.clock import now

# SQLite assigns ids only for INTEGER PRIMARY KEY.
BigId = BigInteger().with_variant(Integer(), "sqlite")
JsonType = JSON().with_variant(JSONB(), "postgresql")

IdPk = Annotated[int, mapped_column(BigId, primary_key=True, autoincrement=True)]
Json = Annotated[dict[str, Any], mapped_column(JsonType)]
Timestamp = Annotated[float, mapped_column(Float(53))]
CreatedAt = Annotated[float, mapped_column(Float(53), server_default=now(), default=now())]


class Base(DeclarativeBase):
    """Names constraints equally on both databases, so that migrations can address them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
