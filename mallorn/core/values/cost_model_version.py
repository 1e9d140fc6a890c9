"""A version of a cost model, as its coordinator tells of it."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value
from mallorn.core.values.cost_model import CostModelMetrics


class CostModelVersion(Value):
    """One version; models are everyone's, as the measurements that they learned from."""

    id: int
    full_name: Annotated[str, Field(description="`FAMILY/NAME@VERSION`, unique on a target.")]
    family: Annotated[
        str, Field(description="Which tasks it is asked about; `base:OPERATOR` was pre-trained.")
    ]
    target: Annotated[str, Field(description="Canonical JSON.")]
    name: Annotated[str, Field(description="Which model it is, as jobs name it in `cost_model`.")]
    version: int
    active: Annotated[bool, Field(description="Whether it is what new rounds are proposed by.")] = False
    parent_id: int | None = None
    parent: Annotated[str | None, Field(description="The version that training went on from.")] = None
    snapshot: Annotated[
        str | None,
        Field(description="The frozen rows it learned from; null: its family's up to `seen_upto`."),
    ] = None
    seen_upto: Annotated[int, Field(description="The newest measurement it may have learned from.")] = 0
    rows: Annotated[int, Field(description="Measurements it was trained for.")] = 0
    metrics: CostModelMetrics = CostModelMetrics()
    created_at: float = 0.0
