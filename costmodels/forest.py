"""A forest of random trees; the spread of a score is the disagreement of the trees."""

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import ExtraTreeRegressor

from costmodels.bagging import UNKNOWN, Weights, draws, finite, ignorant, importance, pooled, variance_share
from costmodels.base import CostModel, Matrix, Prediction, Vector
from costmodels.blobs import pack, unpack
from costmodels.checks import check_rows
from costmodels.trees import Trees, as_trees

KIND = "forest"
MEMBERS = 32
PARAMETERS = {"max_features": 0.5, "min_samples_leaf": 2, "max_depth": 20}


class Forest(CostModel):
    """Extremely randomised trees, each on a bootstrap of the rows.

    Random thresholds give smooth scores from few rows, and spreads that grow where rows are rare.
    """

    def __init__(self) -> None:
        self._trees: Trees | None = None
        self._share, self._noise = 1.0, UNKNOWN

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._trees, self._share, self._noise = None, 1.0, UNKNOWN
        if not len(labels):
            return
        rng = np.random.default_rng(seed)
        rows, weight = finite(features), importance(labels)
        drawn = draws(rng, len(labels), MEMBERS)
        self._trees = grown(rows, labels, drawn * weight, rng)
        share, rest = variance_share(self._trees.opinions(rows), labels, weight * (drawn == 0))
        self._share, self._noise = share, rest**0.5

    def predict(self, features: Matrix) -> Prediction:
        if self._trees is None:
            return ignorant(len(features))
        return pooled(self._trees.opinions(finite(features)), self._noise, self._share)

    def save(self) -> bytes:
        arrays = self._trees._asdict() if self._trees else {}
        return pack(KIND, {"noise": self._noise, "share": self._share}, arrays)

    @classmethod
    def load(cls, blob: bytes) -> "Forest":
        numbers, arrays = unpack(KIND, blob)
        model = cls()
        model._noise, model._share = numbers["noise"], numbers["share"]
        model._trees = Trees(**arrays) if arrays else None
        return model


def grown(
    rows: Matrix, targets: Vector, weights: Weights, rng: np.random.Generator, **parameters: float
) -> Trees:
    """A tree for each line of weights, on the rows that weigh; parameters of scikit-learn's replace ours."""
    trees = []
    for weight in weights:
        met = weight > 0
        seed = int(rng.integers(2**31))
        tree = ExtraTreeRegressor(**{**PARAMETERS, **parameters}, random_state=seed)
        trees.append(tree.fit(rows[met], targets[met], sample_weight=weight[met]))
    return as_trees(trees)
