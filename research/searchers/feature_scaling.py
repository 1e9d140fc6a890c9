"""Scales features, so that distances between candidates are meaningful."""

import numpy as np
from numpy.typing import NDArray

from mallorn.searchers.space import Matrix

Points = NDArray[np.float64]


def standardize_features(features: Matrix) -> Points:
    """Return standardised columns without constant ones; rows have a length of about 1."""
    columns = np.asarray(features, dtype=np.float64)
    deviation = columns.std(axis=0)
    varies = deviation > 1e-6
    if not varies.any():
        return np.zeros((len(columns), 1))
    standardised = (columns[:, varies] - columns[:, varies].mean(axis=0)) / deviation[varies]
    return np.asarray(standardised / np.sqrt(standardised.shape[1]))


def squared_distances(points: Points, other_points: Points) -> Points:
    squares = (points**2).sum(axis=1)[:, None] + (other_points**2).sum(axis=1)[None, :]
    return np.asarray(np.maximum(0.0, squares - 2.0 * points @ other_points.T), dtype=np.float64)
