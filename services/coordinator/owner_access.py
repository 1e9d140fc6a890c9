"""Admin-only routes to list owners, sign them out, ban, readmit and erase them."""

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from db.repositories import access_control
from mallorn.core.api_keys import OwnerDeed, Scope
from mallorn.core.errors import Conflict
from mallorn.core.values.access_control import OwnerStatus
from services.coordinator.keys import Word
from services.coordinator.web.app_context import PartsDep
from services.coordinator.web.authenticator import needs
from services.coordinator.web.caller_dependencies import CallerDep
from services.coordinator.web.response_types import ListOut

router = APIRouter(prefix="/owners", tags=["keys"])


class OwnerIn(BaseModel):
    """The owner's name, not in the path: the audit log would keep an erased owner's name."""

    model_config = ConfigDict(extra="forbid")

    owner: Annotated[Word, Field(description="The owner's name.")]


@router.get("", openapi_extra=needs(Scope.ADMIN))
def list_owners(parts: PartsDep) -> ListOut[OwnerStatus]:
    """List all owners; for a banned one, with the time of the ban."""
    with parts.database.session() as session:
        return ListOut(items=access_control.Owners(session).list())


@router.post("/{deed}", openapi_extra=needs(Scope.ADMIN))
def treat_owner(parts: PartsDep, caller: CallerDep, deed: OwnerDeed, body: OwnerIn) -> OwnerStatus:
    """Sign out, ban (`put-out`: ends keys and jobs), readmit (`let-in`) or erase an owner."""
    if deed in (OwnerDeed.PUT_OUT, OwnerDeed.ERASE) and body.owner == caller.owner:
        raise Conflict("admins cannot ban or erase themselves", hint="ask another admin")
    return access_control.apply_deed(parts.database, deed, body.owner)
