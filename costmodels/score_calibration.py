"""Map ranking scores to labels by a monotone curve."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from costmodels.base import Column, Prediction, Vector
from costmodels.ensemble_spread import UNKNOWN, importance, pooled, unexplained
from costmodels.serialization import Arrays, Numbers

MOST_KNOTS = 12
ROWS_A_KNOT = 8
# Extra slope, in labels per deviation, so that different scores never map to the same label.
TILT = 0.02


class MonotoneCurve(NamedTuple):
    """A strictly increasing, piecewise linear curve from scores to labels."""

    scores: Column
    labels: Column
    tilt: float

    def __call__(self, scores: Column) -> Column:
        if not len(self.scores):
            return self.tilt * scores
        flat = np.interp(scores, self.scores, self.labels)
        return np.asarray(flat + self.tilt * (scores - self.scores.mean()), dtype=np.float64)


UNSCALED = MonotoneCurve(np.empty(0), np.empty(0), 1.0)


def fit_scale(scores: Column, labels: Vector, weights: Column) -> MonotoneCurve:
    """Return the curve through the mean scores and labels of a few bins, made non-decreasing."""
    weighted = np.flatnonzero(weights)
    if not len(weighted):
        return UNSCALED
    order = weighted[np.argsort(scores[weighted], kind="stable")]
    bins = np.array_split(order, min(MOST_KNOTS, max(1, len(order) // ROWS_A_KNOT)))
    middles = [np.average(scores[rows], weights=weights[rows]) for rows in bins]
    heights = [np.average(labels[rows], weights=weights[rows]) for rows in bins]
    deviation = float(scores[weighted].std())
    return MonotoneCurve(
        np.array(middles), np.maximum.accumulate(heights), TILT / deviation if deviation else TILT
    )


class ScoreCalibration(NamedTuple):
    """The curve from members' scores to labels, and the error that variance does not explain."""

    scale: MonotoneCurve
    noise: float

    def __call__(self, raw: Column) -> Prediction:
        """Return the members' joint prediction from their raw scores (members x rows)."""
        return pooled(self.scale(raw), self.noise)

    @property
    def numbers(self) -> Numbers:
        """The numbers to store; see also `arrays`."""
        return {"noise": self.noise, "tilt": self.scale.tilt}

    def arrays(self, of: str = "") -> Arrays:
        """Return the knots of the curve, with `of` appended to their names."""
        return {f"scores{of}": self.scale.scores, f"labels{of}": self.scale.labels}

    @classmethod
    def stored(cls, numbers: Numbers, arrays: Arrays, of: str = "") -> Self:
        """Return the calibration stored as `numbers` and `arrays`."""
        return cls(
            MonotoneCurve(arrays[f"scores{of}"], arrays[f"labels{of}"], numbers["tilt"]), numbers["noise"]
        )


UNCALIBRATED = ScoreCalibration(UNSCALED, UNKNOWN)


def calibrated(
    raw: Column, labels: Vector, unseen: NDArray[np.bool_], *, curve: bool = True
) -> ScoreCalibration:
    """Fit a calibration on the rows that each member was not trained on.

    `raw` and `unseen` have shape members x rows. With `curve=False` scores are not rescaled.
    """
    if not len(labels):
        return UNCALIBRATED
    left_out = unseen.astype(np.float64)
    truth = np.broadcast_to(labels, raw.shape)
    scale = fit_scale(raw.ravel(), truth.ravel(), left_out.ravel()) if curve else UNSCALED
    return ScoreCalibration(scale, unexplained(scale(raw), labels, importance(labels) * left_out))
