"""A model as the API shows it."""

from typing import Annotated, Self

from pydantic import BaseModel, Field

from db.tables import Model


class ModelOut(BaseModel):
    """An uploaded network."""

    id: Annotated[str, Field(description="SHA-256 of its bytes.")]
    name: str
    size_bytes: int
    created_at: float

    @classmethod
    def of(cls, model: Model) -> Self:
        return cls(id=model.id, name=model.name, size_bytes=model.size_bytes, created_at=model.created_at)
