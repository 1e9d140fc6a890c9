"""What every model asks of the rows that it learns from."""

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Matrix, Vector
from costmodels.views import VIEWS
from mallorn.core.errors import InvalidRequest

ROUNDING = 1e-4


def check_rows(features: Matrix, labels: Vector, groups: NDArray[np.int64]) -> None:
    """InvalidRequest where there is not one label and one group a row, or a label is none."""
    if not len(features) == len(labels) == len(groups):
        raise InvalidRequest(
            f"{len(features)} rows have {len(labels)} labels and {len(groups)} groups",
            hint="give every row one label and one group",
        )
    wrong = ~np.isfinite(labels) | (labels > ROUNDING)
    if wrong.any():
        raise InvalidRequest(
            f"{wrong.sum()} of {len(labels)} labels are not log(best latency / latency), which is at most 0: "
            f"the first of them is {labels[wrong][0]:g}",
            hint="make labels of latencies with costmodels.training.labels",
        )


def check_width(features: Matrix, view: str) -> None:
    """InvalidRequest where the rows are not of this view."""
    if features.ndim != 2 or features.shape[1] != VIEWS[view].width:
        raise InvalidRequest(
            f"rows of shape {features.shape} are no {view}: each has {VIEWS[view].width} columns",
            hint=f"compute the view {view!r} of the candidates, version {VIEWS[view].version}",
        )
