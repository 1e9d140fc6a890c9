"""Routes for models, which are uploaded whole or, to resume after a break, in parts."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeVar

from fastapi import APIRouter, Path, Query, Request
from fastapi.concurrency import run_in_threadpool

from mallorn.core.artifact_uris import parts_uri
from mallorn.core.errors import Conflict, InvalidRequest, NotFound, TooMany, Unavailable
from mallorn.core.values.dataset import UploadedModel, UploadStatus
from mallorn.db.repositories.access_control import Usage
from mallorn.db.repositories.stored_files import Models
from mallorn.services import artifact_removal
from mallorn.services.coordinator.web.app_parts import AppParts, PartsDep
from mallorn.services.coordinator.web.artifact_store import Upload
from mallorn.services.coordinator.web.caller_dependencies import FewAtOnce, OwnerDep
from mallorn.services.coordinator.web.quotas import check_storage
from mallorn.services.coordinator.web.response_types import BYTES, CursorQuery, LimitQuery, PageOut

router = APIRouter(prefix="/models", tags=["models"])
uploads_router = APIRouter(prefix="/uploads", tags=["models"])
PART_BYTES: Final = 64 << 20
MOST_UNFINISHED: Final = 4  # largest models whose parts an owner may store, without a quota
DigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$", description="SHA-256 of the model's bytes.")]
IndexPath = Annotated[int, Path(ge=0, lt=10_000, description="Position of the part, from 0.")]
T = TypeVar("T")
NameQuery = Annotated[str, Query(max_length=200, description="Display name of the model.")]
WRITE_BYTES: Final = 1 << 20
FORMS: Final = ("multipart/", "application/x-www-form-urlencoded")
BODY: Final = {"required": True, "content": {"application/octet-stream": {"schema": BYTES}}}


@router.put("", openapi_extra={"requestBody": BODY})
async def upload_model(
    request: Request, parts: PartsDep, owner: OwnerDep, name: NameQuery = ""
) -> UploadedModel:
    """Upload a model as the raw request body; equal bytes get the same id."""
    upload = parts.store.upload(parts.settings.max_model_bytes)
    keep = partial(_store_upload, parts, owner, name, upload)
    return await _receive_bytes(request, parts, owner, upload, keep)


async def _receive_bytes(
    request: Request, parts: AppParts, owner: str, upload: Upload, keep: Callable[[], T]
) -> T:
    """Write a request's body to an upload, and return the result of `keep`, which moves it."""
    if request.headers.get("content-type", "").startswith(FORMS):  # a form is not a model
        message = "send the model's bytes as the whole body, not as a form"
        raise InvalidRequest(message, hint="curl -T model.onnx URL")
    announced_bytes = int(request.headers.get("content-length", 0))
    upload.check_size(announced_bytes)
    with parts.uploads.count_request(owner), parts.arriving.track_request(owner) as grow:
        grow(announced_bytes)
        await run_in_threadpool(upload.__enter__)
        try:  # an empty, too large or incomplete upload is removed
            async for block in _join_chunks(request.stream()):
                grow(upload.size_bytes + len(block))
                await run_in_threadpool(upload.write, block)
            return await run_in_threadpool(keep)
        finally:
            await run_in_threadpool(upload.__exit__, None, None, None)


@router.get("")
def list_models(
    parts: PartsDep, owner: OwnerDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> PageOut[UploadedModel]:
    """List the owner's models, newest first."""
    with parts.database.session() as session:
        page = Models(session).list(owner, cursor, limit)
    return PageOut(items=[UploadedModel.from_row(model) for model in page.items], next_cursor=page.cursor)


@router.get("/{model_id}")
def get_model(parts: PartsDep, owner: OwnerDep, model_id: str) -> UploadedModel:
    """Show a model of the caller, if its bytes are stored."""
    with parts.database.session() as session:
        model = Models(session).get(model_id, owner)
    if not parts.store.has_model(model_id):  # they are lost: the client must upload them again
        raise NotFound(f"the bytes of model {model_id} are missing", hint="upload the model again")
    return UploadedModel.from_row(model)


@router.delete("/{model_id}", status_code=HTTPStatus.NO_CONTENT)
def delete_model(parts: PartsDep, owner: OwnerDep, model_id: str) -> None:
    """Delete a model unless a job of its owner refers to it; its measurements stay."""
    artifact_removal.delete_model(parts.database, parts.settings.artifacts, model_id, owner)


async def _join_chunks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join small network chunks into blocks, so that fewer thread calls are needed."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= WRITE_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _store_upload(parts: AppParts, owner: str, name: str, upload: Upload) -> UploadedModel:
    """Store an upload: first the bytes, outside a transaction, as the store may be slow."""
    model_id = upload.close_and_hash()
    upload.move_to_final_path()
    try:
        with parts.database.transaction() as session:
            Models(session).lock_model(model_id)
            Usage(session).lock_owner_usage(owner)
            model = Models(session).add(model_id, owner, name or model_id[:12], upload.size_bytes)
            check_storage(session, parts.settings, owner)
            if not parts.store.has_model(model_id):
                raise Unavailable("the model was deleted meanwhile", hint="upload the model again")
            return UploadedModel.from_row(model)
    except TooMany:
        artifact_removal.remove_unowned_model(parts.database, parts.settings.artifacts, model_id)
        raise


@uploads_router.get("/{digest}")
def show_upload(parts: PartsDep, owner: OwnerDep, digest: DigestPath) -> UploadStatus:
    """Show which parts of a model the caller has uploaded; they are kept for a day."""
    sizes = parts.store.part_sizes(parts_uri(parts.settings.artifacts, owner, digest))
    return UploadStatus(model_id=digest, part_bytes=PART_BYTES, parts=sorted(sizes[digest]))


@uploads_router.put(
    "/{digest}/parts/{index}", status_code=HTTPStatus.NO_CONTENT, openapi_extra={"requestBody": BODY}
)
async def upload_part(
    request: Request, parts: PartsDep, owner: OwnerDep, digest: DigestPath, index: IndexPath
) -> None:
    """Upload a part as the raw body: `part_bytes`, or less if it is the last. A repeated
    part replaces the first."""
    largest_bytes = parts.settings.max_model_bytes
    if index * PART_BYTES >= largest_bytes:
        raise InvalidRequest(f"this server accepts models up to {largest_bytes:,} bytes")
    all_parts = parts_uri(parts.settings.artifacts, owner, "*")
    sizes = await run_in_threadpool(parts.store.part_sizes, all_parts)
    limit_bytes = parts.settings.quota_model_bytes or MOST_UNFINISHED * largest_bytes
    quota = parts.settings.quota_uploads
    total_bytes = sum(sum(folder.values()) for folder in sizes.values())
    if total_bytes >= limit_bytes or (quota and len(sizes.keys() | {digest}) > quota):
        amount = f"{quota or 'any number of'} unfinished uploads of {limit_bytes:,} bytes"
        raise TooMany(f"{owner} may have {amount}", hint="finish one; after a day they are deleted")
    part = parts.store.upload(PART_BYTES)

    def store_part() -> None:
        part.close_and_hash()
        *full_parts, _last = sorted((sizes[digest] | {index: part.size_bytes}).items())
        if short := [position for position, size in full_parts if size < PART_BYTES]:
            message = f"part {short[0]} is not the last and has less than {PART_BYTES:,} bytes"
            raise InvalidRequest(message, hint=f"send it again with {PART_BYTES:,} bytes")
        part.move(f"{parts_uri(parts.settings.artifacts, owner, digest)}/{index}")

    await _receive_bytes(request, parts, owner, part, store_part)


@uploads_router.post("/{digest}/complete", dependencies=[FewAtOnce])
def complete_upload(
    parts: PartsDep, owner: OwnerDep, digest: DigestPath, name: NameQuery = ""
) -> UploadedModel:
    """Join the parts and store the model. If they are other bytes, all parts are deleted."""
    uri = parts_uri(parts.settings.artifacts, owner, digest)
    sizes = parts.store.part_sizes(uri)[digest]
    if not sizes or max(sizes) >= len(sizes):
        raise Conflict("the upload lacks parts", hint=f"GET /uploads/{digest} names those that it has")
    upload = parts.store.upload(parts.settings.max_model_bytes)
    upload.check_size(sum(sizes.values()))
    with parts.uploads.count_request(owner), parts.arriving.track_request(owner) as grow, upload:
        grow(sum(sizes.values()))
        for index in range(len(sizes)):
            for chunk in parts.store.chunks(f"{uri}/{index}"):
                upload.write(chunk)
        if upload.close_and_hash() != digest:
            artifact_removal.remove(uri)
            message = f"the parts are not the bytes of model {digest}"
            raise Conflict(message, hint="upload the model again")
        model = _store_upload(parts, owner, name, upload)
    artifact_removal.remove(uri)
    return model
