"""Bootstraps for ensembles, spreads from members' disagreement, calibration of scores."""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from mallorn.costmodels.base import FAILED_LABEL, Column, Prediction, Vector
from mallorn.costmodels.serialization import Arrays, Numbers

Weights = NDArray[np.float64]
Matrix = NDArray[np.floating[Any]]

LARGEST = float(np.finfo(np.float32).max)
UNKNOWN = -FAILED_LABEL  # spread of scores of an untrained model


def replace_nonfinite(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features with NaN replaced by 0 and infinities by the largest float32."""
    return np.nan_to_num(features, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def bootstrap_counts(rng: np.random.Generator, rows: int, members: int) -> NDArray[np.int64]:
    """Return how often each member's bootstrap contains each row (members x rows)."""
    return rng.multinomial(rows, np.full(rows, 1 / rows), size=members)


def weight_fast_rows(labels: Vector) -> Weights:
    """Return training weights, larger for fast rows: the order of slow rows matters less."""
    return np.exp(labels.astype(np.float64)) + 0.1


def unexplained_error(scores: Matrix, labels: Vector, left_out: Weights) -> float:
    """Return the RMS error on rows that members did not train on, beyond their variance."""
    if not left_out.any():
        return UNKNOWN
    error = np.average((scores - labels) ** 2, weights=left_out)
    explained = np.average(np.broadcast_to(scores.var(axis=0, ddof=1), scores.shape), weights=left_out)
    return float(np.sqrt(max(0.0, error - explained)))


def combine_member_scores(scores: Matrix, noise: float, share: float = 1.0) -> Prediction:
    """Return members' mean scores, and deviations from their disagreement and `noise`."""
    spread = np.sqrt(share * scores.var(axis=0, ddof=1) + noise**2)
    return Prediction(scores.mean(axis=0).astype(np.float32), spread.astype(np.float32))


def untrained_prediction(rows: int) -> Prediction:
    """Return an untrained model's prediction: score 0 and the largest deviation."""
    return Prediction(np.zeros(rows, dtype=np.float32), np.full(rows, UNKNOWN, dtype=np.float32))


MOST_KNOTS = 12
ROWS_A_KNOT = 8
# Extra slope, in labels per deviation, so that different scores never map to one label.
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


def fit_monotone_curve(scores: Column, labels: Vector, weights: Column) -> MonotoneCurve:
    """Fit a monotone curve to the mean scores and labels of bins of rows, with weights."""
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
    """The curve from members' scores to labels, and the error that variance leaves."""

    scale: MonotoneCurve
    noise: float

    def __call__(self, raw: Column) -> Prediction:
        """Return the members' joint prediction from their raw scores (members x rows)."""
        return combine_member_scores(self.scale(raw), self.noise)

    @property
    def numbers(self) -> Numbers:
        """The calibration's numbers to store, in addition to `arrays`."""
        return {"noise": self.noise, "tilt": self.scale.tilt}

    def arrays(self, suffix: str = "") -> Arrays:
        """Return the curve's points to store, with `suffix` appended to their names."""
        return {f"scores{suffix}": self.scale.scores, f"labels{suffix}": self.scale.labels}

    @classmethod
    def from_stored(cls, numbers: Numbers, arrays: Arrays, suffix: str = "") -> Self:
        scores, labels = arrays[f"scores{suffix}"], arrays[f"labels{suffix}"]
        return cls(MonotoneCurve(scores, labels, numbers["tilt"]), numbers["noise"])


UNCALIBRATED = ScoreCalibration(UNSCALED, UNKNOWN)


def fit_calibration(
    member_scores: Column, labels: Vector, unseen: NDArray[np.bool_], *, has_curve: bool = True
) -> ScoreCalibration:
    """Fit a calibration on the rows that each member was not trained on.

    `raw` and `unseen` have shape members x rows. Without `has_curve`, nothing is rescaled.
    """
    if not len(labels):
        return UNCALIBRATED
    left_out = unseen.astype(np.float64)
    scale = UNSCALED
    if has_curve:
        truth = np.broadcast_to(labels, member_scores.shape)
        scale = fit_monotone_curve(member_scores.ravel(), truth.ravel(), left_out.ravel())
    weights = weight_fast_rows(labels) * left_out
    return ScoreCalibration(scale, unexplained_error(scale(member_scores), labels, weights))
