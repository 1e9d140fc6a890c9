"""Who did what, as the coordinator tells of it."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class AuditEntry(Value):
    """A request that would change something, by somebody who was known."""

    id: int
    at: Annotated[float, Field(description="When it was answered.")]
    owner: Annotated[str, Field(description="Who asked.")]
    key_id: Annotated[str, Field(description="With which key; empty: one of the environment, or none.")]
    method: str
    path: Annotated[str, Field(description="What it was about. No body and no parameter is kept.")]
    status: Annotated[int, Field(description="What it was answered with; refusals are kept, too.")]
