"""The audit log."""

from fastapi import APIRouter

from db.repositories.audit import Audit
from mallorn.core.values.audit import AuditEntry
from services.coordinator.web.auth import CallerDep
from services.coordinator.web.paging import CursorQuery, LimitQuery, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/audit", tags=["keys"])


@router.get("")
def list_audit(
    parts: PartsDep, caller: CallerDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> PageOut[AuditEntry]:
    """List who did what, newest first: the caller's own; an admin's answer has everybody's."""
    with parts.database.session() as session:
        page = Audit(session).page(caller.sees, cursor, limit)
    return PageOut(items=page.items, next_cursor=page.cursor)
