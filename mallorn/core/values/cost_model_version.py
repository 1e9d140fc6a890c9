"""A cost-model version with its metrics, as the coordinator sends it."""

from typing import Annotated

from pydantic import Field

from mallorn.core.values.base import Value


class SplitFigures(Value):
    """Metrics on held-out rows; null: undefined."""

    pairwise: Annotated[float | None, Field(description="Share of pairs ranked right; 0.5 is chance.")] = None
    spearman: float | None = None
    peak_1: Annotated[
        float | None, Field(description="Best time divided by that of the model's first choice.")
    ] = None
    peak_5: Annotated[
        float | None, Field(description="Best time divided by the best of its first five choices.")
    ] = None
    rmse: float | None = None


class CostModelMetrics(SplitFigures):
    """Training data of a version; for a pretrained base also its metrics on the first split."""

    training_rows: Annotated[int | None, Field(description="Number of training rows.")] = None
    available_rows: Annotated[
        int | None, Field(description="Rows from which these were chosen; null: all used.")
    ] = None
    foreign_rows: Annotated[int | None, Field(description="Rows of other tuners; null: none.")] = None
    groups: Annotated[int | None, Field(description="Groups of comparable rows; null for a base.")] = None
    base: Annotated[str, Field(description="Pretrained model that training began from; may be empty.")] = ""
    view: Annotated[
        str,
        Field(description="Features that it reads: view, version and, if compiled, builder; may be empty."),
    ] = ""
    tasks: Annotated[int | None, Field(description="Workloads in a base's training rows.")] = None
    targets: Annotated[int | None, Field(description="Targets in a base's training rows.")] = None
    split: Annotated[str, Field(description="How rows were held out for the metrics; may be empty.")] = ""
    splits: Annotated[dict[str, SplitFigures], Field(description="Metrics of a base by split.")] = {}


class CostModelVersion(Value):
    """A cost-model version; only those trained for private jobs are hidden from other owners."""

    id: int
    full_name: Annotated[str, Field(description="`FAMILY/NAME@VERSION`, unique for a target.")]
    family: Annotated[
        str, Field(description="Task family that it predicts; `base:OPERATOR` of a pretrained model.")
    ]
    target: Annotated[str, Field(description="Canonical JSON.")]
    name: Annotated[str, Field(description="Registered name, as in the job option `cost_model`.")]
    version: int
    active: Annotated[bool, Field(description="Whether new rounds use this version.")] = False
    parent_id: int | None = None
    parent: Annotated[str | None, Field(description="The version that was active before; null: none.")] = None
    snapshot: Annotated[
        str | None,
        Field(description="Snapshot of its training rows; null: its family's rows up to `seen_upto`."),
    ] = None
    seen_upto: Annotated[int, Field(description="Id of the newest measurement it may be trained on.")] = 0
    rows: Annotated[int, Field(description="Number of measurements from which its rows were drawn.")] = 0
    metrics: CostModelMetrics = CostModelMetrics()
    created_at: float = 0.0
