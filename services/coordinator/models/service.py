"""Receives models and finds them again."""

from collections.abc import AsyncIterator
from typing import Final

from fastapi.concurrency import run_in_threadpool

from db.repositories.models import Models
from mallorn.core.artifacts import model_uri
from mallorn.core.errors import InvalidRequest
from services.artifacts import remove
from services.coordinator.models.schemas import ModelOut
from services.coordinator.web.paging import PageOut
from services.coordinator.web.parts import Parts
from services.coordinator.web.store import Upload

WRITE_BYTES: Final = 1 << 20
FORMS: Final = ("multipart/", "application/x-www-form-urlencoded")


def check_content_type(content_type: str) -> None:
    """Raise InvalidRequest for a form: its bytes are not the model's."""
    if content_type.startswith(FORMS):
        raise InvalidRequest(
            "send the model's bytes as the whole body, not as a form", hint="curl -T model.onnx URL"
        )


async def receive(
    parts: Parts, owner: str, name: str, announced_bytes: int, chunks: AsyncIterator[bytes]
) -> ModelOut:
    """Store a model as it streams in; nothing is kept of one that is empty, too large or torn."""
    upload = parts.store.upload(parts.settings.max_model_bytes)
    upload.expect(announced_bytes)
    await run_in_threadpool(upload.__enter__)
    try:
        async for block in _blocks(chunks):
            await run_in_threadpool(upload.write, block)
        return await run_in_threadpool(_keep, parts, owner, name, upload)
    finally:
        await run_in_threadpool(upload.__exit__, None, None, None)


async def _blocks(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Join the network's small pieces, so that a thread is asked once for many of them."""
    block = bytearray()
    async for chunk in chunks:
        block += chunk
        if len(block) >= WRITE_BYTES:
            yield bytes(block)
            block.clear()
    if block:
        yield bytes(block)


def _keep(parts: Parts, owner: str, name: str, upload: Upload) -> ModelOut:
    model_id = upload.close()
    with parts.database.transaction() as session:
        # Nobody deletes the bytes between their arrival and the row that refers to them.
        Models(session).hold(model_id)
        model = Models(session).add(model_id, owner, name or model_id[:12], upload.size_bytes)
        upload.keep()
        return ModelOut.of(model)


def list_models(parts: Parts, owner: str, cursor: str | None, limit: int) -> PageOut[ModelOut]:
    with parts.database.session() as session:
        page = Models(session).list(owner, cursor, limit)
    return PageOut(items=[ModelOut.of(model) for model in page.items], next_cursor=page.cursor)


def get_model(parts: Parts, owner: str, model_id: str) -> ModelOut:
    with parts.database.session() as session:
        return ModelOut.of(Models(session).get(model_id, owner))


def delete_model(parts: Parts, owner: str, model_id: str) -> None:
    """Raises NotFound; Conflict while jobs refer to it. Another owner of the same bytes keeps them."""
    with parts.database.transaction() as session:
        if Models(session).delete(model_id, owner):
            remove(model_uri(parts.settings.artifacts, model_id))
