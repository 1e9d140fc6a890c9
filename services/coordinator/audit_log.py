"""The audit log, its route and middleware; also middleware that puts job ids into logs."""

import logging
import re
from typing import Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mallorn.core.errors import MallornError
from mallorn.core.log_setup import log_context
from mallorn.core.values.access_control import ApiKey, AuditEntry
from mallorn.db.repositories.access_control import Audit, NewAuditEntry
from mallorn.db.session import Database
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.authenticator import SAFE_METHODS, Caller
from mallorn.services.coordinator.web.caller_dependencies import CallerDep
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware
from mallorn.services.coordinator.web.response_types import CursorQuery, LimitQuery, PageOut

log = logging.getLogger(__name__)
MOST_CHARS: Final = 200
CHANGED_KEY: Final = "changed_key"
router = APIRouter(prefix="/audit", tags=["keys"])
JOB: Final = re.compile(r"/jobs/(?P<job>[0-9a-f]+)(/|$)")


def add_key_to_audit_entry(request: Request, key: ApiKey) -> None:
    """Add the changed key to the request's audit entry, so that the key's owner sees it."""
    scopes = ", ".join(key.scopes)
    request.scope["state"][CHANGED_KEY] = key.owner, f"key {key.id}, which may {scopes}"


class AuditMiddleware(HttpMiddleware):
    """Middleware that stores an audit entry for every changing request before its response.

    Unauthenticated requests get no entry, so that they cannot fill the disk.
    """

    def __init__(self, app: ASGIApp, database: Database) -> None:
        super().__init__(app)
        self._database = database

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in SAFE_METHODS:
            await self._app(scope, receive, send)
            return
        state = scope.setdefault("state", {})

        async def send_after_entry(message: Message) -> None:
            caller = state.get("caller")
            if message["type"] == "http.response.start" and caller is not None:
                await run_in_threadpool(self._store_entry, caller, scope, message["status"])
            await send(message)

        await self._app(scope, receive, send_after_entry)

    def _store_entry(self, caller: Caller, scope: Scope, status: int) -> None:
        method, path = scope["method"], scope["path"][:MOST_CHARS]
        subject, detail = scope["state"].get(CHANGED_KEY, ("", ""))
        entry = NewAuditEntry(caller.owner, caller.key_id, method, path, status, subject, detail)
        try:
            with self._database.transaction() as session:
                Audit(session).add(entry)
        except MallornError as error:  # the change is committed, so the request must succeed
            log.warning("not in the audit log: %s %s by %s: %s", method, path, caller.owner, error.message)


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
        with log_context(**(match.groupdict() if match else {})):
            await self._app(scope, receive, send)
