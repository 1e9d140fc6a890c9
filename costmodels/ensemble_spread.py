"""Bootstraps, and spreads from the members' disagreement, for learners that are ensembles."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from costmodels.base import FAILED_LABEL, Prediction, Vector

Weights = NDArray[np.float64]
Matrix = NDArray[np.floating[Any]]

LARGEST = float(np.finfo(np.float32).max)
UNKNOWN = -FAILED_LABEL  # the spread of a score without any data
FEWEST_JUDGED = 8
LEAST_SHARE = 0.05  # so that a row unlike any other always has a larger spread


def finite(features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Features without NaN and infinity."""
    return np.nan_to_num(features, nan=0.0, posinf=LARGEST, neginf=-LARGEST)


def draws(rng: np.random.Generator, rows: int, members: int) -> NDArray[np.int64]:
    """How often each member's bootstrap holds each row."""
    return rng.multinomial(rows, np.full(rows, 1 / rows), size=members)


def folds(rng: np.random.Generator, rows: int, members: int, parts: int) -> NDArray[np.int64]:
    """How often each member sees each row: once, except for the one part of `parts` that it leaves out."""
    part = rng.permutation(rows) % parts
    sees = part != np.arange(members)[:, None] if rows >= parts else np.ones((members, rows))
    return sees.astype(np.int64)


def importance(labels: Vector) -> Weights:
    """Fast rows weigh more: a wrong order among slow ones costs nothing."""
    return np.exp(labels.astype(np.float64)) + 0.1


def unexplained(scores: Matrix, labels: Vector, left_out: Weights) -> float:
    """The error on rows that a member did not see, beyond what the members' spread explains."""
    if not left_out.any():
        return UNKNOWN
    error = np.average((scores - labels) ** 2, weights=left_out)
    covered = np.average(np.broadcast_to(scores.var(axis=0, ddof=1), scores.shape), weights=left_out)
    return float(np.sqrt(max(0.0, error - covered)))


def variance_share(scores: Matrix, labels: Vector, left_out: Weights) -> tuple[float, float]:
    """The factor on the members' variance, and the constant, that add up to the squared error of their mean.

    Judged on each row by the members that did not see it: those that differ may still be right together.
    """
    rows = np.flatnonzero(left_out.any(axis=0))
    if len(rows) < FEWEST_JUDGED:
        return 1.0, UNKNOWN**2
    unseen, weight = (left_out > 0)[:, rows], left_out.max(axis=0)[rows]
    together = (scores[:, rows] * unseen).sum(axis=0) / unseen.sum(axis=0)
    error, variance = (together - labels[rows]) ** 2, scores[:, rows].var(axis=0, ddof=1)
    middle = np.average(variance, weights=weight)
    spread = np.average((variance - middle) ** 2, weights=weight)
    shared = np.average((variance - middle) * error, weights=weight)
    share = float(np.clip(shared / spread, LEAST_SHARE, 1.0)) if spread else 1.0
    return share, max(0.0, float(np.average(error, weights=weight) - share * middle))


def pooled(scores: Matrix, noise: float, share: float = 1.0) -> Prediction:
    """The members' mean; where they disagree the score is unsure."""
    spread = np.sqrt(share * scores.var(axis=0, ddof=1) + noise**2)
    return Prediction(scores.mean(axis=0).astype(np.float32), spread.astype(np.float32))


def ignorant(rows: int) -> Prediction:
    """Before any data every row scores alike, and any score is possible."""
    nothing = np.zeros(rows, dtype=np.float32)
    return Prediction(nothing, nothing + np.float32(UNKNOWN))
