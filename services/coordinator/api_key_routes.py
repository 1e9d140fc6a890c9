"""Routes for API keys and, for admins only, for owners.

Admins create keys, and owners rotate and revoke their own. Admins list owners, sign them
out, ban, readmit and erase them.
"""

from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, field_validator

from mallorn.core.api_keys import USUAL_SCOPES, OwnerAction, Scope, hash_secret
from mallorn.core.errors import Conflict, Forbidden
from mallorn.core.storable_json import check_storable
from mallorn.core.values.access_control import ApiKey, NewApiKey, OwnerStatus
from mallorn.db.repositories.access_control import ApiKeys, Owners, apply_owner_action
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.audit_log import add_key_to_audit_entry
from mallorn.services.coordinator.web.authenticator import required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import (
    CallerDep,
    add_to_audit_entry,
    read_credentials,
)
from mallorn.services.coordinator.web.response_types import ListOut

router = APIRouter(prefix="/keys", tags=["keys"])
owners_router = APIRouter(prefix="/owners", tags=["keys"])
ANY: Final = required_scopes_extra(*Scope)
MOST_DAYS: Final = 3650.0
MOST_GRACE_MINUTES: Final = 7 * 1440.0
ROTATE: Final = "mallorn keys rotate KEY --api-key mln_...   (or ask an admin)"
IdPath = Annotated[str, Path(description="The key's id.")]
GraceQuery = Annotated[
    float, Query(ge=0, le=MOST_GRACE_MINUTES, description="How long the old secret is valid.")
]
Word = Annotated[str, Field(min_length=1, max_length=200)]


class KeyIn(BaseModel):
    """The API key to create."""

    model_config = ConfigDict(extra="forbid")

    name: Annotated[Word, Field(description="What the key is for.")]
    owner: Annotated[Word | None, Field(description="Its owner; default: the caller.")] = None
    scopes: Annotated[
        list[Scope], Field(min_length=1, max_length=len(Scope), description="What it may do.")
    ] = list(USUAL_SCOPES)
    days: Annotated[
        float | None, Field(gt=0, le=MOST_DAYS, description="Days until it expires; null: never.")
    ] = None

    @field_validator("name", "owner")
    @classmethod
    def _require_storable(cls, value: str | None) -> str | None:
        check_storable(value)
        return value


@router.get("", openapi_extra=ANY)
def list_keys(parts: PartsDep, caller: CallerDep) -> ListOut[ApiKey]:
    """List the caller's keys, newest first; admins get the keys of all owners."""
    with parts.database.session() as session:
        return ListOut(items=ApiKeys(session).list(caller.visible_owner))


@router.post("", status_code=HTTPStatus.CREATED, openapi_extra=required_scopes_extra(Scope.ADMIN))
def create_key(parts: PartsDep, caller: CallerDep, request: Request, body: KeyIn) -> NewApiKey:
    """Create a key for any owner, noted in the audit log. Only this response shows the key."""
    with parts.database.transaction() as session:
        scopes = tuple(scope for scope in Scope if scope in body.scopes)
        key = ApiKeys(session).create(body.owner or caller.owner, body.name, scopes, body.days)
    add_key_to_audit_entry(request, key)
    return key


@router.post("/{key_id}/rotate", openapi_extra=ANY)
def rotate_key(
    parts: PartsDep, caller: CallerDep, request: Request, key_id: IdPath, grace_minutes: GraceQuery = 0.0
) -> NewApiKey:
    """Give a valid key a new secret. The request needs the key itself, or an admin's."""
    with parts.database.transaction() as session:
        key = ApiKeys(session).get(key_id, caller.visible_owner)
        # A browser session or an old secret is not enough: both expire, a new secret may not.
        is_admin = caller.visible_owner is None
        digest = None if is_admin else hash_secret(read_credentials(request).key or "")
        if digest is not None and not ApiKeys(session).is_current(key_id, digest):
            raise Forbidden("only an admin can rotate another key than the one that is used", hint=ROTATE)
        rotated = ApiKeys(session).rotate(key, grace_minutes * 60, digest)
    add_key_to_audit_entry(request, key)
    return rotated


@router.delete("/{key_id}", status_code=HTTPStatus.NO_CONTENT, openapi_extra=ANY)
def revoke_key(parts: PartsDep, caller: CallerDep, request: Request, key_id: IdPath) -> None:
    """Revoke a key and its browser sign-ins. The list still shows the key, with the time."""
    with parts.database.transaction() as session:
        key = ApiKeys(session).get(key_id, caller.visible_owner)
        caller.require_all_scopes(key.scopes)
        ApiKeys(session).revoke(key.id)
    add_key_to_audit_entry(request, key)


class OwnerIn(BaseModel):
    """The owner's name, not in the path: the audit log would keep an erased owner's name."""

    model_config = ConfigDict(extra="forbid")

    owner: Annotated[Word, Field(description="The owner's name.")]


@owners_router.get("", openapi_extra=required_scopes_extra(Scope.ADMIN))
def list_owners(parts: PartsDep) -> ListOut[OwnerStatus]:
    """List all owners; for a banned one, with the time of the ban."""
    with parts.database.session() as session:
        return ListOut(items=Owners(session).list())


@owners_router.post("/{action}", openapi_extra=required_scopes_extra(Scope.ADMIN))
def change_owner_access(
    parts: PartsDep, caller: CallerDep, request: Request, action: OwnerAction, body: OwnerIn
) -> OwnerStatus:
    """Sign out, ban (`ban`: ends keys and jobs), readmit (`readmit`) or erase an owner."""
    if action in (OwnerAction.BAN, OwnerAction.ERASE) and body.owner == caller.owner:
        raise Conflict("admins cannot ban or erase themselves", hint="ask another admin")
    status = apply_owner_action(parts.database, action, body.owner)
    add_to_audit_entry(request, status.owner, f"{action} of this owner")
    return status
