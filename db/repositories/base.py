"""Base class of all repositories: session, upserts for both databases, locks on jobs; pages of lists."""

import base64
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Generic, Self, TypeVar

from sqlalchemy import ColumnElement, CursorResult, Executable, Select, any_, func, literal, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from mallorn.core.errors import InvalidRequest, NotFound
from mallorn.core.states import Waiting
from mallorn.core.storable_json import read_json
from mallorn.db.database_clock import now
from mallorn.db.tables import Base, Job

Found = TypeVar("Found")
Item = TypeVar("Item")
MAX_LIMIT = 1000  # items of a page
ERROR_CHARS = 600  # a row stores this much of the end of an error message
# Columns of a job that neither waits nor has ended, and whose state says what is done.
UNEXPLAINED: Final[dict[str, object]] = {**asdict(Waiting("")), "ended_because": "", "step": None}


class Repository:
    """Queries over one session; the caller commits."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def insert(self, table: type[Base]) -> sqlite.Insert | postgresql.Insert:
        """Return an INSERT that offers the ON CONFLICT clauses of both databases."""
        if self.session.get_bind().dialect.name == "postgresql":
            return postgresql.insert(table)
        return sqlite.insert(table)

    def is_among(self, column: InstrumentedAttribute[Any], values: Iterable[object]) -> ColumnElement[bool]:
        """Return the condition that a column is in `values`, sent as one parameter."""
        if self.session.get_bind().dialect.name == "postgresql":
            return column == any_(literal(list(values), postgresql.ARRAY(column.type)))
        elements = func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(select(elements.c.value))

    def is_in(self, column: InstrumentedAttribute[Any], query: Select[Any]) -> ColumnElement[bool]:
        """Return the condition that a column is in a query's rows. Postgres gets them as an
        array, or else it would expect many and scan the column's table."""
        query = query.correlate(None)
        if self.session.get_bind().dialect.name != "postgresql":
            return column.in_(query)
        return column == any_(func.array(query.scalar_subquery(), type_=postgresql.ARRAY(column.type)))

    def execute_and_count(self, statement: Executable) -> int:
        """Run an UPDATE or DELETE and return the number of affected rows."""
        result = self.session.execute(statement)
        assert isinstance(result, CursorResult)  # noqa: S101 - tells mypy what execute() returns for DML
        return result.rowcount

    def execute_for_rows(self, statement: Executable, rows: Sequence[Mapping[str, object]]) -> int:
        """Run a prepared statement for any number of rows; return how many it affected."""
        # Through the connection, because the ORM would put all values into one long statement.
        options = {"preserve_rowcount": True}
        return self.session.connection().execute(statement, rows, execution_options=options).rowcount

    def lock_name(self, name: str) -> None:
        """Lock a name until the transaction ends; SQLite, with one writer, needs no lock."""
        if self.session.get_bind().dialect.name == "postgresql":
            self.session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))

    def lock_jobs(self, ids: Select[str] | Sequence[str]) -> None:
        """Lock these jobs' rows (on SQLite, all rows) until the transaction ends."""
        rows = select(Job.id).where(Job.id.in_(ids)).order_by(Job.id)
        self.session.execute(rows.with_for_update(key_share=True)).all()


def seconds_from_now(seconds: float) -> ColumnElement[float]:
    """Return the SQL expression for `seconds` from now, by the database's clock."""
    return now() + seconds


def require_row(row: Found | None, subject: str, hint: str = "") -> Found:
    """Return the row, or raise NotFound if there is none."""
    if row is None:
        raise NotFound(f"there is no {subject}", hint=hint)
    return row


def equalities(columns: Sequence[Any], values: Sequence[object]) -> list[ColumnElement[bool]]:
    """Return the SQL conditions that columns have these values; None fits every value."""
    return [column == value for column, value in zip(columns, values, strict=True) if value is not None]


def is_owned_by(owner: str | None) -> ColumnElement[bool]:
    """Return the SQL condition that a job is the owner's; true if `owner` is None."""
    return true() if owner is None else Job.owner == owner


@dataclass(frozen=True, slots=True)
class Page(Generic[Item]):
    """A page of a long list: its items, and the cursor of the next page (None on the last)."""

    items: list[Item]
    cursor: str | None

    @classmethod
    def of(
        cls, rows: Sequence[Item], limit: int, position: Callable[[Item], tuple[str | float, ...]]
    ) -> Self:
        """Build a page from up to `limit + 1` rows; the extra one shows that more follow."""
        items = list(rows[:limit])
        has_more = len(rows) > limit
        return cls(items, cls.encode_cursor(*position(items[-1])) if has_more else None)

    @staticmethod
    def encode_cursor(*position: str | float) -> str:
        """Encode the sort key of a page's last item as text that is safe in a URL."""
        return base64.urlsafe_b64encode(json.dumps(position).encode()).decode().rstrip("=")

    @staticmethod
    def decode_cursor(cursor: str, *types: type) -> list[Any]:
        """Decode what `encode_cursor` returned. Raises InvalidRequest unless of `types`."""
        try:
            position = read_json(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        except ValueError:
            position = None
        if not isinstance(position, list) or [type(part) for part in position] != list(types):
            message = "this cursor was not made by Mallorn"
            raise InvalidRequest(message, hint="leave the cursor out for the first page")
        return position
