"""The audit log: owners' requests, deleted when they are old."""

from dataclasses import asdict, dataclass

from sqlalchemy import delete, select, true, union

from db.paging import Page, check_limit, decode_cursor, page
from db.repositories.base import Repository, until
from db.tables import AuditRow
from mallorn.core.values.access_control import AuditEntry


@dataclass(frozen=True, slots=True)
class NewAuditEntry:
    """An answered request: the owner who sent it and, if it changed a key, the key's owner (`subject`)."""

    owner: str
    key_id: str
    method: str
    path: str
    status: int
    subject: str = ""
    detail: str = ""


class Audit(Repository):
    """Entries in the order in which they were written."""

    def add(self, entry: NewAuditEntry) -> None:
        """Add the entry of a request that was just answered."""
        self.session.add(AuditRow(**asdict(entry)))

    def page(self, owner: str | None, cursor: str | None = None, limit: int = 50) -> Page[AuditEntry]:
        """Return a page, newest first, of requests by an owner or on the owner's keys; None: of all."""
        is_older = true() if cursor is None else AuditRow.id < decode_cursor(cursor, int)[0]
        query = select(AuditRow).where(is_older).order_by(AuditRow.id.desc()).limit(check_limit(limit) + 1)
        if owner is not None:  # each of the two columns has its own index
            newest = select(AuditRow.id).where(is_older).order_by(AuditRow.id.desc()).limit(limit + 1)
            ids = (newest.where(column == owner).subquery() for column in (AuditRow.owner, AuditRow.subject))
            query = query.where(AuditRow.id.in_(union(*(select(half.c.id) for half in ids))))
        entries = [AuditEntry.from_row(row) for row in self.session.scalars(query)]
        return page(entries, limit, lambda entry: (entry.id,))

    def forget(self, days: float, limit: int) -> int:
        """Delete up to `limit` entries older than `days` days, oldest first; return how many."""
        old = select(AuditRow.id).where(AuditRow.at < until(-days * 86400)).order_by(AuditRow.at).limit(limit)
        return self.changed(delete(AuditRow).where(AuditRow.id.in_(old)))
