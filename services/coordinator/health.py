"""Whether this coordinator lives and can work: for whoever supervises it. Needs no key and tells no data."""

from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import BaseModel, Field

from db.migrate import check
from mallorn.core.errors import Conflict, Unavailable
from mallorn.core.version import API, VERSION
from services.coordinator.web.parts import PartsDep

router = APIRouter(tags=["health"])


class Alive(BaseModel):
    """The process lives."""

    status: Literal["ok"] = "ok"
    version: Annotated[str, Field(description="Of this coordinator.")] = VERSION
    api: Annotated[str, Field(description="Where its API begins.")] = API


class Ready(BaseModel):
    """Every part that is needed answers."""

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    migrations: Literal["ok"] = "ok"
    broker: Literal["ok"] = "ok"


@router.get("/healthz")
def healthz() -> Alive:
    """Answer as long as the process lives."""
    return Alive()


@router.get("/readyz")
def readyz(parts: PartsDep) -> Ready:
    """Answer 200 when database, migrations and broker are there, else 503 naming the part that is missing."""
    parts.database.ping()
    try:
        check(parts.database)
    except Conflict as error:
        raise Unavailable(f"migrations: {error.message}", hint=error.hint) from error
    parts.waker.ping()
    return Ready()
