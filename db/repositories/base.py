"""What the repositories share: the session, upserts for both databases, and the lock on a job."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, CursorResult, Executable, Select, any_, func, literal, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import InstrumentedAttribute, Session

from db.database_clock import now
from db.tables import Base, Job
from mallorn.core.states import Cause

ERROR_CHARS = 600  # of an error's last words that a row keeps


class Repository:
    """Queries over one session; the caller commits."""

    def __init__(self, session: Session) -> None:
        self.session = session

    def insert(self, table: type[Base]) -> sqlite.Insert | postgresql.Insert:
        """An INSERT with the ON CONFLICT clauses that both databases know."""
        if self.session.get_bind().dialect.name == "postgresql":
            return postgresql.insert(table)
        return sqlite.insert(table)

    def among(self, column: InstrumentedAttribute[Any], values: Iterable[object]) -> ColumnElement[bool]:
        """Whether a column is one of these, however many: as one parameter, where 65,535 are the most."""
        if self.session.get_bind().dialect.name == "postgresql":
            return column == any_(literal(list(values), postgresql.ARRAY(column.type)))
        each = func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(select(each.c.value))

    def changed(self, statement: Executable) -> int:
        """Run an UPDATE or DELETE and say how many rows it touched."""
        result = self.session.execute(statement)
        assert isinstance(result, CursorResult)  # noqa: S101 - tells mypy what execute() returns for DML
        return result.rowcount

    def for_each(self, statement: Executable, rows: Sequence[Mapping[str, object]]) -> int:
        """Run one prepared statement for any number of rows and say how many it touched."""
        # Through the connection: the ORM would write the values into ever longer statements.
        options = {"preserve_rowcount": True}
        return self.session.connection().execute(statement, rows, execution_options=options).rowcount

    def hold(self, name: str) -> None:
        """Let nobody else hold this name until the transaction ends; SQLite has one writer anyway."""
        if self.session.get_bind().dialect.name == "postgresql":
            self.session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))

    def lock_jobs(self, ids: Select[str]) -> None:
        """Hold these jobs' rows until the transaction ends; SQLite holds the whole database anyway."""
        rows = select(Job.id).where(Job.id.in_(ids)).order_by(Job.id)
        self.session.execute(rows.with_for_update(key_share=True)).all()

    def lock_job(self, job_id: str) -> None:
        """Hold one job's row until the transaction ends."""
        self.session.execute(select(Job.id).where(Job.id == job_id).with_for_update(key_share=True)).all()


def until(seconds: float) -> ColumnElement[float]:
    """A moment from now by the database's clock."""
    return now() + seconds


def said(reason: str, cause: Cause = Cause.OTHER, detail: str = "") -> dict[str, str]:
    """The columns of a job that say why it is where it is: to people, and to programs."""
    return {"reason": reason, "cause": cause, "cause_detail": detail}


def owned(owner: str | None) -> ColumnElement[bool]:
    """Restricts a query that reads or joins jobs to one owner's."""
    return true() if owner is None else Job.owner == owner
