"""Routes of uploaded models."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request

from services.coordinator.models import service
from services.coordinator.models.schemas import ModelOut
from services.coordinator.web.auth import OwnerDep
from services.coordinator.web.paging import CursorQuery, LimitQuery, PageOut
from services.coordinator.web.parts import PartsDep

router = APIRouter(prefix="/models", tags=["models"])
RAW_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.put("", openapi_extra=RAW_BODY)
async def put_model(
    request: Request,
    parts: PartsDep,
    owner: OwnerDep,
    name: Annotated[str, Query(max_length=200, description="A name for people.")] = "",
) -> ModelOut:
    """Upload a model as the raw body of the request; the same bytes get the same id."""
    service.check_content_type(request.headers.get("content-type", ""))
    announced = request.headers.get("content-length", "")
    announced_bytes = int(announced) if announced.isdigit() else 0
    return await service.receive(parts, owner, name, announced_bytes, request.stream())


@router.get("")
def list_models(
    parts: PartsDep, owner: OwnerDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> PageOut[ModelOut]:
    """List the owner's models, newest first."""
    return service.list_models(parts, owner, cursor, limit)


@router.get("/{model_id}")
def get_model(parts: PartsDep, owner: OwnerDep, model_id: str) -> ModelOut:
    """Show one model."""
    return service.get_model(parts, owner, model_id)


@router.delete("/{model_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_model(parts: PartsDep, owner: OwnerDep, model_id: str) -> None:
    """Delete a model and its bytes, unless a job refers to it; what was measured stays."""
    service.delete_model(parts, owner, model_id)
