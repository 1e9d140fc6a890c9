"""What the health routes answer."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from mallorn.core.version import API, VERSION


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
