"""The audit log: who did what, kept until it is old."""

from sqlalchemy import delete, select

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, until
from db.tables import AuditRow
from mallorn.core.values.access_control import AuditEntry


class Audit(Repository):
    """Entries in the order in which they were written."""

    def add(self, owner: str, key_id: str, method: str, path: str, status: int) -> None:
        """It was just answered."""
        self.session.add(AuditRow(owner=owner, key_id=key_id, method=method, path=path, status=status))

    def page(self, owner: str | None, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        """Newest first; `owner` None stands for all."""
        query = select(AuditRow).order_by(AuditRow.id.desc()).limit(check_limit(limit) + 1)
        if owner is not None:
            query = query.where(AuditRow.owner == owner)
        if cursor is not None:
            query = query.where(AuditRow.id < decode_cursor(cursor, int)[0])
        found = [AuditEntry.from_row(row) for row in self.session.scalars(query)]
        return page(found, limit, lambda entry: (entry.id,))

    def forget(self, days: float, limit: int) -> int:
        """Delete entries older than that, the oldest first; how many."""
        old = select(AuditRow.id).where(AuditRow.at < until(-days * 86400)).order_by(AuditRow.at).limit(limit)
        return self.changed(delete(AuditRow).where(AuditRow.id.in_(old)))
