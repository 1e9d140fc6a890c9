"""Asks every part that a request may need."""

from db.migrate import check
from mallorn.core.errors import Conflict, Unavailable
from services.coordinator.health.schemas import Ready
from services.coordinator.web.parts import Parts


def readiness(parts: Parts) -> Ready:
    """Raises Unavailable naming the first part that is missing: database, migrations or broker."""
    parts.database.ping()
    try:
        check(parts.database)
    except Conflict as error:
        raise Unavailable(f"migrations: {error.message}", hint=error.hint) from error
    parts.waker.ping()
    return Ready()
