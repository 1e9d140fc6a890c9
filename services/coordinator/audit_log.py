"""The audit log, its route and middleware; also middleware that puts job ids into logs."""

import logging
import re
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from threading import Lock
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
from mallorn.services.coordinator.web.authenticator import MOST_KNOWN, SAFE_METHODS, Caller, CredentialRefused
from mallorn.services.coordinator.web.caller_dependencies import CallerDep
from mallorn.services.coordinator.web.forwarded_headers import HttpMiddleware
from mallorn.services.coordinator.web.response_types import CursorQuery, LimitQuery, PageOut

log = logging.getLogger(__name__)
MOST_CHARS: Final = 200
ADDITION: Final = "audit_addition"  # key in a request's state for the subject and detail of its entry
router = APIRouter(prefix="/audit", tags=["keys"])
JOB: Final = re.compile(r"/jobs/(?P<job>[0-9a-f]+)(/|$)")


def add_key_to_audit_entry(request: Request, key: ApiKey) -> None:
    """Add the changed key to the request's audit entry, so that the key's owner sees it."""
    add_to_audit_entry(request, key.owner, f"key {key.id}, which may {', '.join(key.scopes)}")


def add_to_audit_entry(request: Request, owner: str, detail: str) -> None:
    """Add the owner of a changed credential to the request's audit entry, so that the owner sees it."""
    request.scope["state"][ADDITION] = owner, detail


#: Entries of one key and one detail in a minute, by whether requests were refused; more are only counted.
MOST_PER_MINUTE: Final = {True: 5, False: 600}
MINUTE_SEC: Final = 60.0


@dataclass(slots=True)
class _Minute:
    began_sec: float
    entries: int = 0
    surplus_id: int | None = None  # the row that counts entries over the limit
    lock: Lock = field(default_factory=Lock)


class AuditMiddleware(HttpMiddleware):
    """Middleware that stores an audit entry for every changing request before its response.

    Other requests get one if they made or ended a credential, or if one was refused whose
    owner is known. Unauthenticated requests get none, so that they cannot fill the disk.
    """

    def __init__(self, app: ASGIApp, database: Database) -> None:
        super().__init__(app)
        self._database = database
        self._minutes: dict[tuple[str, str, str, bool], _Minute] = {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})

        async def send_after_entry(message: Message) -> None:
            if message["type"] == "http.response.start":
                entry = _audit_entry(scope, message["status"])
                if entry is not None:
                    await run_in_threadpool(self._store_entry, entry)
            await send(message)

        await self._app(scope, receive, send_after_entry)

    def _store_entry(self, entry: NewAuditEntry) -> None:
        is_refused, now_sec = entry.status >= HTTPStatus.BAD_REQUEST, time.monotonic()
        if len(self._minutes) >= MOST_KNOWN:
            self._minutes.clear()
        key = entry.owner, entry.key_id, entry.detail, is_refused
        minute = self._minutes.setdefault(key, _Minute(now_sec))
        with minute.lock:
            if now_sec - minute.began_sec >= MINUTE_SEC:
                minute.began_sec, minute.entries, minute.surplus_id = now_sec, 0, None
            minute.entries += 1
            surplus = minute.entries - MOST_PER_MINUTE[is_refused]
            if surplus > 0 and surplus.bit_count() > 1:  # the row is written as the number doubles
                return
            try:
                with self._database.transaction() as session:
                    if surplus > 0:
                        minute.surplus_id = Audit(session).count_surplus(entry, surplus, minute.surplus_id)
                    else:
                        Audit(session).add(entry)
            except MallornError as error:  # the change is committed, so the request must succeed
                words = f"{entry.method} {entry.path} by {entry.owner}"
                log.warning("not in the audit log: %s: %s", words, error.message)


def _audit_entry(scope: Scope, status: int) -> NewAuditEntry | None:
    """Return the entry of an answered request; None if it has none."""
    state, method = scope["state"], scope["method"]
    caller: Caller | None = state.get("caller")
    refusal: CredentialRefused | None = state.get("refused")
    subject, detail = state.get(ADDITION, ("", ""))
    if refusal is not None:
        subject, detail = refusal.owner, refusal.message.removeprefix(f"{refusal.owner} ")
    elif not subject and (caller is None or method in SAFE_METHODS):
        return None
    owner, key_id = subject, refusal.key_id if refusal else ""
    if caller is not None:
        owner, key_id = caller.owner, caller.key_id
    return NewAuditEntry(
        owner, key_id, method, scope["path"][:MOST_CHARS], status, subject, detail[:MOST_CHARS]
    )


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
