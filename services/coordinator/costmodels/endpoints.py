"""Routes of trained cost models."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from services.coordinator.costmodels import service
from services.coordinator.costmodels.schemas import CostModelOut
from services.coordinator.jobs.schemas import MAX_INT
from services.coordinator.web.paging import CursorQuery, LimitQuery, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/costmodels", tags=["cost models"])
# A column of 64 bits.
IdPath = Annotated[int, Path(ge=1, le=2**63 - 1, description="The version's id.")]


@router.get("")
def list_cost_models(
    parts: PartsDep,
    family: Annotated[str | None, Query(description="Only models of this family.")] = None,
    target: Annotated[str | None, Query(description="Only models for exactly this target.")] = None,
    name: Annotated[str | None, Query(description="Only models that jobs name so in `cost_model`.")] = None,
    version: Annotated[int | None, Query(ge=1, le=MAX_INT, description="Only this version of each.")] = None,
    active: Annotated[
        bool | None, Query(description="Only those that new rounds use, or only others.")
    ] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> PageOut[CostModelOut]:
    """List the versions of all cost models, newest first."""
    return service.list_models(parts, family, target, name, version, active, cursor, limit)


@router.get("/{cost_model_id}")
def get_cost_model(parts: PartsDep, cost_model_id: IdPath) -> CostModelOut:
    """Show one version: what it learned from and how well it does."""
    return service.get_model(parts, cost_model_id)


@router.post("/{cost_model_id}/activate")
def activate_cost_model(parts: PartsDep, cost_model_id: IdPath) -> CostModelOut:
    """Let new rounds use this version, and training go on from it; later versions are kept."""
    return service.activate(parts, cost_model_id)
