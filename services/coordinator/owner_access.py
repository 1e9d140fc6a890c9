"""Admin-only routes to list owners, sign them out, ban, readmit and erase them."""

from typing import Annotated

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field

from mallorn.core.api_keys import OwnerAction, Scope
from mallorn.core.errors import Conflict
from mallorn.core.values.access_control import OwnerStatus
from mallorn.db.repositories import access_control
from mallorn.services.coordinator.api_key_routes import Word
from mallorn.services.coordinator.audit_log import add_to_audit_entry
from mallorn.services.coordinator.web.app_context import PartsDep
from mallorn.services.coordinator.web.authenticator import required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import CallerDep
from mallorn.services.coordinator.web.response_types import ListOut

router = APIRouter(prefix="/owners", tags=["keys"])


class OwnerIn(BaseModel):
    """The owner's name, not in the path: the audit log would keep an erased owner's name."""

    model_config = ConfigDict(extra="forbid")

    owner: Annotated[Word, Field(description="The owner's name.")]


@router.get("", openapi_extra=required_scopes_extra(Scope.ADMIN))
def list_owners(parts: PartsDep) -> ListOut[OwnerStatus]:
    """List all owners; for a banned one, with the time of the ban."""
    with parts.database.session() as session:
        return ListOut(items=access_control.Owners(session).list())


@router.post("/{action}", openapi_extra=required_scopes_extra(Scope.ADMIN))
def change_owner_access(
    parts: PartsDep, caller: CallerDep, request: Request, action: OwnerAction, body: OwnerIn
) -> OwnerStatus:
    """Sign out, ban (`ban`: ends keys and jobs), readmit (`readmit`) or erase an owner."""
    if action in (OwnerAction.BAN, OwnerAction.ERASE) and body.owner == caller.owner:
        raise Conflict("admins cannot ban or erase themselves", hint="ask another admin")
    status = access_control.apply_owner_action(parts.database, action, body.owner)
    add_to_audit_entry(request, status.owner, f"{action} of this owner")
    return status
