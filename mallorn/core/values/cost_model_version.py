"""A cost-model version with its metrics, as the coordinator sends it."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class SplitFigures(Value):
    """Figures on rows that were held out; null: they cannot be told."""

    pairwise: Annotated[float | None, Field(description="Share of pairs in order; 0.5 is chance.")] = None
    spearman: float | None = None
    peak_1: Annotated[float | None, Field(description="Best time over that of its first choice.")] = None
    peak_5: Annotated[float | None, Field(description="Best time over the best of its first five.")] = None
    rmse: float | None = None


class CostModelMetrics(SplitFigures):
    """What a version learned from; a base's figures too, of the first of its splits."""

    trained_on: Annotated[int | None, Field(description="Rows.")] = None
    chosen_from: Annotated[int | None, Field(description="Rows of which these were chosen; null: all.")] = (
        None
    )
    foreign: Annotated[int | None, Field(description="Of those, other tuners'; null: none.")] = None
    groups: Annotated[int | None, Field(description="Workloads and contexts; not of a base.")] = None
    base: Annotated[str, Field(description="The pre-trained model that it began from; may be empty.")] = ""
    view: Annotated[
        str,
        Field(description="What it reads: view, version and, of a compiled view, the builder; may be empty."),
    ] = ""
    tasks: Annotated[int | None, Field(description="Workloads that a base learned from.")] = None
    targets: Annotated[int | None, Field(description="Targets that a base learned from.")] = None
    split: Annotated[str, Field(description="How rows were held out for the figures; may be empty.")] = ""
    splits: Annotated[dict[str, SplitFigures], Field(description="Figures of a base by split.")] = {}


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
