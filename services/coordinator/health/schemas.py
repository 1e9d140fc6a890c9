"""What the health routes answer."""

from typing import Literal

from pydantic import BaseModel


class Alive(BaseModel):
    """The process lives."""

    status: Literal["ok"] = "ok"


class Ready(BaseModel):
    """Every part that is needed answers."""

    status: Literal["ready"] = "ready"
    database: Literal["ok"] = "ok"
    migrations: Literal["ok"] = "ok"
    broker: Literal["ok"] = "ok"
