"""Routes for uploads of large models in parts: after a break, only the missing parts are sent."""

from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mallorn.core.artifact_uris import upload_uri
from mallorn.core.errors import Conflict, InvalidRequest, TooLarge
from mallorn.core.storable_json import check_storable
from mallorn.core.values.dataset import UploadedModel, UploadStatus
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.stored_files import ModelUploads
from mallorn.db.tables import ModelUpload
from mallorn.services.artifact_removal import delete_upload
from mallorn.services.coordinator.uploaded_models import BODY, receive_bytes, store_upload
from mallorn.services.coordinator.web.app_context import AppContext, PartsDep
from mallorn.services.coordinator.web.artifact_store import PART_BYTES
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.quotas import check_uploads
from mallorn.services.coordinator.web.response_types import MAX_BIG_INT

router = APIRouter(prefix="/uploads", tags=["models"])
MOST_PARTS: Final = 10_000
IndexPath = Annotated[int, Path(ge=0, lt=MOST_PARTS, description="Position of the part, from 0.")]


class UploadIn(BaseModel):
    """A model to upload in parts."""

    model_config = ConfigDict(extra="forbid")

    model_id: Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the model's bytes.")]
    size_bytes: Annotated[int, Field(ge=1, le=MAX_BIG_INT)]
    name: Annotated[str, Field(max_length=200, description="Display name of the model.")] = ""

    @model_validator(mode="before")
    @classmethod
    def _require_storable(cls, value: Any) -> Any:
        check_storable(value)
        return value


@router.post("")
def open_upload(parts: PartsDep, owner: OwnerDep, request: UploadIn) -> UploadStatus:
    """Begin an upload in parts, or return the caller's unfinished one of the same bytes."""
    parts.store.upload(parts.settings.max_model_bytes).check_size(request.size_bytes)
    if request.size_bytes > MOST_PARTS * PART_BYTES:
        raise TooLarge(f"a model has up to {MOST_PARTS * PART_BYTES:,} bytes")
    with parts.database.transaction() as session:
        Usage(session).lock_owner_usage(owner)
        upload = ModelUploads(session).open(
            owner, request.model_id, request.name, request.size_bytes, PART_BYTES
        )
        check_uploads(session, parts.settings, owner)
        return UploadStatus.from_row(upload, parts=_received_parts(parts, upload))


@router.put(
    "/{upload_id}/parts/{index}",
    status_code=HTTPStatus.NO_CONTENT,
    openapi_extra={"requestBody": BODY},
)
async def upload_part(
    request: Request, parts: PartsDep, owner: OwnerDep, upload_id: str, index: IndexPath
) -> None:
    """Upload a part as the raw body: `part_bytes`, or the rest. A repeated part replaces the first."""
    size_bytes = await run_in_threadpool(_begin_part, parts, owner, upload_id, index)
    refusal = f"part {index} of this upload has {max(0, size_bytes):,} bytes"
    if size_bytes <= 0:
        raise InvalidRequest(refusal)
    part = parts.store.upload(size_bytes)
    uri = f"{upload_uri(parts.settings.artifacts, upload_id)}/{index}"

    def store_part() -> None:
        if part.size_bytes != size_bytes:
            raise InvalidRequest(refusal)
        part.close_and_hash()
        part.move(uri)

    try:
        await receive_bytes(request, parts, owner, part, store_part)
    except TooLarge:
        raise InvalidRequest(refusal) from None


@router.post("/{upload_id}/complete", dependencies=[FewAtOnce])
def complete_upload(parts: PartsDep, owner: OwnerDep, upload_id: str) -> UploadedModel:
    """Join the parts and store the model. Wrong bytes are refused and all parts deleted."""
    artifacts = parts.settings.artifacts
    with parts.database.session() as session:
        row = ModelUploads(session).get(upload_id, owner)
    count = -(-row.size_bytes // row.part_bytes)
    if missing := sorted(set(range(count)) - set(_received_parts(parts, row))):
        message = f"the upload lacks {len(missing)} of {count} parts, the first is {missing[0]}"
        raise Conflict(message, hint=f"PUT /uploads/{upload_id}/parts/{missing[0]}")
    with parts.store.upload(row.size_bytes) as upload:
        for index in range(count):
            for chunk in parts.store.read_chunks(f"{upload_uri(artifacts, upload_id)}/{index}"):
                upload.write(chunk)
        if upload.close_and_hash() != row.model_id:
            delete_upload(parts.database, artifacts, upload_id)
            message = f"the parts are not the bytes of model {row.model_id}"
            raise InvalidRequest(message, hint="upload the model again")
        model = store_upload(parts, owner, row.name, upload)
    delete_upload(parts.database, artifacts, upload_id)
    return model


def _begin_part(parts: AppContext, owner: str, upload_id: str, index: int) -> int:
    with parts.database.transaction() as session:
        upload = ModelUploads(session).get(upload_id, owner)
        ModelUploads(session).record_progress(upload_id)
        return _part_size(upload, index)


def _part_size(upload: ModelUpload, index: int) -> int:
    return min(upload.part_bytes, upload.size_bytes - index * upload.part_bytes)


def _received_parts(parts: AppContext, upload: ModelUpload) -> list[int]:
    sizes = parts.store.part_sizes(upload.id)
    return sorted(index for index, size_bytes in sizes.items() if size_bytes == _part_size(upload, index))
