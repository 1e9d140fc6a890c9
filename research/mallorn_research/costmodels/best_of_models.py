"""Select among cost models: a formula at first, later the best ranker of the newest rows.

Predicted standard deviations (spreads) are scaled to give 80 % intervals of the labels.
"""

from typing import Final, NamedTuple

import numpy as np

from mallorn.core.registry import resolve
from mallorn.core.values.machine import Machine
from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.serialization import as_array, pack, unpack
from mallorn.costmodels.views import check_rows
from mallorn_research.costmodels.evaluation import hold_out_newest, rebase_labels

SHARE: Final = 0.8
DEVIATIONS: Final = 1.2816  # SHARE of a normal distribution is within so many deviations
LEAST_SPREAD: Final = 1e-3
WIDEST: Final = 10.0  # limit of the factor; larger ones mean that held-out rows differ in kind
KIND = "ensemble"
PRIOR: Final = "draft"
LEARNERS: Final = ("xgboost", "lightgbm", "forest", "mlp")
FEWEST_ROWS: Final = 32  # rows needed to tell four learners apart
MOST_JUDGED: Final = 1500  # rows in the comparison; the winner is trained on all rows
CLEARLY: Final = 0.005  # accuracy by which a later learner must be better


def spread_factor(prediction: Prediction, labels: Vector) -> float:
    """Return the factor on deviations that covers 80 % of the labels; 1 without labels."""
    if not len(labels):
        return 1.0
    deviations = np.abs(prediction.mean - labels) / np.maximum(prediction.std, LEAST_SPREAD)
    # With n rows the next one lies below the k-th of them with probability k / (n + 1).
    rank = min(len(deviations), int(np.ceil(SHARE * (len(deviations) + 1)))) - 1
    return float(np.clip(np.sort(deviations)[rank] / DEVIATIONS, 1 / WIDEST, WIDEST))


def scale_spreads(prediction: Prediction, factor: float) -> Prediction:
    mean, std = prediction
    return Prediction(mean, np.maximum(std * np.float32(factor), np.float32(LEAST_SPREAD)))


class JudgedModel(NamedTuple):
    """A model, its pairwise accuracy on held-out rows, and the factor for its deviations."""

    name: str
    accuracy: float
    factor: float
    model: CostModel


class BestOfModels(CostModel):
    """Selects the model that ranks the newest rows best, and calibrates its deviations.

    The newest fifth of each group is held out, every learner is fit on the rest, and the
    one that ranks the newest rows best is fit again on all rows. The formula `draft`, which
    needs no training, competes with the learners.
    """

    def __init__(self, machine: Machine | None = None) -> None:
        self._machine = machine
        self.best = _prior(machine)

    @classmethod
    def made_for(cls, machine: Machine | None) -> "BestOfModels":
        return cls(machine)

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self.best = _prior(self._machine)
        if len(labels) < FEWEST_ROWS:
            return
        train, test = hold_out_newest(groups, MOST_JUDGED, seed=seed)
        train_labels, truth = rebase_labels(labels[train], groups[train]), labels[test]
        best: JudgedModel | None = None
        for name in (PRIOR, *LEARNERS):
            model = _new_model(name, self._machine)
            model.fit(features[train], train_labels, groups[train], seed=seed)
            prediction = model.predict(features[test])
            accuracy = pairwise_accuracy(prediction.mean, truth, groups[test])
            accuracy = 0.5 if np.isnan(accuracy) else accuracy
            if best is None or accuracy > best.accuracy + CLEARLY:
                best = JudgedModel(name, accuracy, spread_factor(prediction, truth), model)
        assert best is not None  # noqa: S101
        best.model.fit(features, labels, groups, seed=seed)
        self.best = best

    def predict(self, features: Matrix) -> Prediction:
        return scale_spreads(self.best.model.predict(features), self.best.factor)

    def save(self) -> bytes:
        name, accuracy, factor, model = self.best
        numbers = {"name": name, "accuracy": accuracy, "factor": factor}
        return pack(KIND, numbers, {"model": as_array(model.save())})

    @classmethod
    def load(cls, blob: bytes) -> "BestOfModels":
        numbers, arrays = unpack(KIND, blob)
        ensemble = cls()
        inner: CostModel = resolve("cost_model", numbers["name"]).load(arrays["model"].tobytes())
        ensemble.best = JudgedModel(numbers["name"], numbers["accuracy"], numbers["factor"], inner)
        return ensemble


def _prior(machine: Machine | None) -> JudgedModel:
    return JudgedModel(PRIOR, 0.5, 1.0, _new_model(PRIOR, machine))


def _new_model(name: str, machine: Machine | None) -> CostModel:
    kind: type[CostModel] = resolve("cost_model", name)
    return kind.made_for(machine)
