"""SQL for the database's clock, in seconds since the epoch, on SQLite and Postgres."""

from typing import Any

from sqlalchemy import Float
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class now(FunctionElement[float]):
    """Seconds since the epoch when the statement runs (not when the transaction began)."""

    type = Float(53)
    inherit_cache = True


@compiles(now, "postgresql")
def _postgres_now(_element: now, _compiler: Any, **_kw: Any) -> str:
    return "extract(epoch from clock_timestamp())::double precision"


@compiles(now, "sqlite")
def _sqlite_now(_element: now, _compiler: Any, **_kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"
