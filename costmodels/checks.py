"""Checks of the rows that a model learns from."""

import numpy as np

from costmodels.base import Groups, Matrix, Vector
from costmodels.views import VIEWS
from mallorn.core.errors import InvalidRequest

ROUNDING = 1e-4


class WrongRows(InvalidRequest):
    """The rows are of another view than the model's."""


def check_rows(features: Matrix, labels: Vector, groups: Groups) -> None:
    """Raises InvalidRequest unless each row has one group and one finite label of at most 0."""
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
    """Raises WrongRows if the rows do not have this view's width."""
    if features.ndim != 2 or features.shape[1] != VIEWS[view].width:
        raise WrongRows(
            f"rows of shape {features.shape} are no {view}: each has {VIEWS[view].width} columns",
            hint=f"compute the view {view!r} of the candidates, version {VIEWS[view].version}",
        )
