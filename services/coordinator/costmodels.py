"""Routes for trained cost models and their versions."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from mallorn.core.api_keys import Scope
from mallorn.core.targets import parse_target
from mallorn.core.values.cost_model_version import CostModelVersion
from mallorn.db.repositories.cost_models import CostModelVersions
from mallorn.services.coordinator.web import response_types
from mallorn.services.coordinator.web.app_parts import PartsDep
from mallorn.services.coordinator.web.authenticator import required_scopes_extra
from mallorn.services.coordinator.web.caller_dependencies import OwnerDep

router = APIRouter(prefix="/costmodels", tags=["cost models"])
IdPath = Annotated[int, Path(ge=1, le=response_types.MAX_BIG_INT, description="The version's id.")]


@router.get("")
def list_cost_models(
    parts: PartsDep,
    owner: OwnerDep,
    family: Annotated[str | None, Query(description="Only models of this family.")] = None,
    target: Annotated[str | None, Query(description="Only models for exactly this target.")] = None,
    name: Annotated[
        str | None, Query(description="Only models for this value of the option `cost_model`.")
    ] = None,
    version: Annotated[
        int | None, Query(ge=1, le=response_types.MAX_INT, description="Only versions with this number.")
    ] = None,
    active: Annotated[
        bool | None, Query(description="True: only those that new rounds use; false: others.")
    ] = None,
    cursor: response_types.CursorQuery = None,
    limit: response_types.LimitQuery = 50,
) -> response_types.PageOut[CostModelVersion]:
    """List cost-model versions, newest first, without other owners' private ones."""
    with parts.database.session() as session:
        page = CostModelVersions(session).page(
            owner,
            family=family,
            target=parse_target(target).key if target else None,
            name=name,
            version=version,
            active=active,
            cursor=cursor,
            limit=limit,
        )
    return response_types.PageOut(items=page.items, next_cursor=page.cursor)


@router.get("/{cost_model_id}")
def get_cost_model(parts: PartsDep, owner: OwnerDep, cost_model_id: IdPath) -> CostModelVersion:
    """Show a cost-model version: its training data, parent version and metrics."""
    with parts.database.session() as session:
        return CostModelVersions(session).get(cost_model_id, owner)


@router.post("/{cost_model_id}/activate", openapi_extra=required_scopes_extra(Scope.ADMIN))
def activate_cost_model(parts: PartsDep, owner: OwnerDep, cost_model_id: IdPath) -> CostModelVersion:
    """Use this version for new rounds and further training; later versions are kept."""
    with parts.database.transaction() as session:
        return CostModelVersions(session).activate(cost_model_id, owner)
