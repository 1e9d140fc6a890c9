"""The audit log, its route and middleware; also middleware that puts job ids into logs."""

import logging
import re
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import MallornError, TooMany
from mallorn.core.log_setup import log_facts
from mallorn.core.values.access_control import ApiKey, AuditEntry
from mallorn.db.repositories.access_control import Audit
from mallorn.db.session import Database
from mallorn.db.tables import AuditRow
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.authenticator import SAFE_METHODS, Caller
from mallorn.services.coordinator.web.caller_dependencies import ADDITION, CallerDep, add_to_audit_entry
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware
from mallorn.services.coordinator.web.quotas import RateLimit
from mallorn.services.coordinator.web.response_types import CursorQuery, LimitQuery, PageOut

log = logging.getLogger(__name__)
MOST_CHARS: Final = 200
router = APIRouter(prefix="/audit", tags=["keys"])
JOB: Final = re.compile(r"/jobs/(?P<job>[0-9a-f]+)(/|$)")


def add_key_to_audit_entry(request: Request, key: ApiKey) -> None:
    add_to_audit_entry(request, key.owner, f"key {key.id}, which may {', '.join(key.scopes)}")


#: Entries a minute of a key and a detail, by whether requests were refused; more are logged.
MOST_PER_MINUTE: Final = {True: 5, False: 600}


class AuditMiddleware(HttpMiddleware):
    """Middleware that stores an audit entry for every changing request before its response.

    Other requests get one if they made or ended a credential, or if one was refused whose
    owner is known. Unauthenticated requests get none, so that they cannot fill the disk.
    """

    def __init__(self, app: ASGIApp, database: Database) -> None:
        super().__init__(app)
        self._database = database
        self._rates = {refused: RateLimit(limit) for refused, limit in MOST_PER_MINUTE.items()}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})

        async def send_after_entry(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry = _audit_entry(scope, message["status"])
                if entry is not None:
                    await run_in_threadpool(self._store_entry, entry)
            await send(message)

        await self._app(scope, receive, send_after_entry)

    def _store_entry(self, entry: AuditRow) -> None:
        rate = self._rates[entry.status >= HTTPStatus.BAD_REQUEST]
        words = f"{entry.method} {entry.path} by {entry.owner}"
        try:
            rate.count_request((entry.owner, entry.key_id, entry.detail), "")
            with self._database.transaction() as session:
                Audit(session).add(entry)
        except TooMany:
            log.warning("not in the audit log: %s: it has many such entries of this minute", words)
        except MallornError as error:  # the change is committed, so the request must succeed
            log.warning("not in the audit log: %s: %s", words, error.message)


def _audit_entry(scope: Scope, status: int) -> AuditRow | None:
    method, caller = scope["method"], scope["state"].get("caller")
    subject, detail, key_id = scope["state"].get(ADDITION, ("", "", ""))
    if not subject and (caller is None or method in SAFE_METHODS):
        return None
    caller = caller or Caller(subject, key_id)
    request = {"method": method, "path": scope["path"][:MOST_CHARS], "status": status}
    whose = {"owner": caller.owner, "key_id": caller.key_id}
    return AuditRow(**whose, **request, subject=subject, detail=detail[:MOST_CHARS])


@router.get("")
def list_audit(
    parts: PartsDep, caller: CallerDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> PageOut[AuditEntry]:
    """List changes by the caller or to the caller's keys, newest first; admins see all."""
    with parts.database.session() as session:
        page = Audit(session).page(caller.visible_owner, cursor, limit)
    return PageOut(items=page.items, next_cursor=page.cursor)


class JobLogMiddleware(HttpMiddleware):
    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        match = JOB.search(scope["path"])
        with log_facts(**(match.groupdict() if match else {})):
            await self._app(scope, receive, send)
