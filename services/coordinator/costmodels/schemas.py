"""A version of a cost model as the API shows it."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from db.repositories.model_versions import ModelVersion


class CostModelOut(BaseModel):
    """One version; models are everyone's, as the measurements that they learned from."""

    id: int
    full_name: Annotated[str, Field(description="`FAMILY/NAME@VERSION`, unique on a target.")]
    family: Annotated[
        str, Field(description="Which tasks it is asked about; `base:OPERATOR` was pre-trained.")
    ]
    target: Annotated[str, Field(description="Canonical JSON.")]
    name: Annotated[str, Field(description="Which model it is, as jobs name it in `cost_model`.")]
    version: int
    active: Annotated[bool, Field(description="Whether it is what new rounds are proposed by.")]
    parent_id: int | None
    parent: Annotated[str | None, Field(description="The version that training went on from.")]
    snapshot: Annotated[
        str | None,
        Field(description="The frozen rows it learned from; null: its family's up to `seen_upto`."),
    ]
    seen_upto: Annotated[int, Field(description="The newest measurement it may have learned from.")]
    rows: Annotated[int, Field(description="Measurements it was trained for.")]
    metrics: dict[str, Any]
    created_at: float

    @classmethod
    def of(cls, found: ModelVersion) -> Self:
        return cls(
            id=found.id,
            full_name=str(found.full_name),
            family=found.family,
            target=found.target,
            name=found.name,
            version=found.version,
            active=found.active,
            parent_id=found.parent_id,
            parent=None if found.parent is None else str(found.parent),
            snapshot=found.snapshot,
            seen_upto=found.seen_upto,
            rows=found.rows,
            metrics=found.metrics,
            created_at=found.created_at,
        )
