"""LightGBM with hyperparameters found by FLAML."""

from collections.abc import Mapping
from typing import Final, Self

import numpy as np

from mallorn.core.installation import RESEARCH, import_optional_module
from mallorn.costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from mallorn.costmodels.labels import is_time_label
from mallorn.costmodels.lightgbm_models import LightGBM
from mallorn.costmodels.metrics import pairwise_accuracy
from mallorn.costmodels.serialization import as_array, pack, unpack
from mallorn.costmodels.views import check_rows
from mallorn_research.costmodels.evaluation import hold_out_newest, rebase_labels

KIND: Final = "automl"
SETTINGS: Final = 20  # settings tried in each fit
FEWEST_ROWS: Final = 64  # rows needed to compare settings on held-out rows
MOST_JUDGED: Final = 1500
WRONG: Final = "wrong_pairs"
Numbered = Mapping[str, float]  # values by hyperparameter name
START: Final[Numbered] = {
    "num_leaves": 31,
    "learning_rate": 0.15,
    "min_data_in_leaf": 3,
    "feature_fraction_bynode": 0.5,
    "lambda_l2": 0.01,
    "trees": 40,
}


class AutoML(CostModel):
    """Tries 20 settings, the defaults first, and keeps the best ranker of the newest rows.

    `fit` needs the extra `flaml`, and 20 times the seconds of `lightgbm`: it is meant for
    base models, not for jobs. The same data and seed give the same model.
    """

    def __init__(self) -> None:
        self._model = LightGBM()
        self.settings = START  # best settings of the search

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self.settings = START
        if len(labels) >= FEWEST_ROWS and is_time_label(labels).any():
            flaml = import_optional_module("flaml", "the cost model automl", "flaml", RESEARCH)
            train, test = hold_out_newest(groups, MOST_JUDGED, seed=seed)
            train_labels = rebase_labels(labels[train], groups[train])

            def judge(settings: Numbered) -> dict[str, float]:
                model = _model_with(settings)
                model.fit(features[train], train_labels, groups[train], seed=seed)
                accuracy = pairwise_accuracy(model.predict(features[test]).mean, labels[test], groups[test])
                return {WRONG: 0.5 if np.isnan(accuracy) else 1 - accuracy}

            search = flaml.CFO(
                metric=WRONG,
                mode="min",
                space={
                    "num_leaves": flaml.tune.lograndint(4, 128),
                    "learning_rate": flaml.tune.loguniform(0.03, 0.4),
                    "min_data_in_leaf": flaml.tune.lograndint(1, 33),
                    "feature_fraction_bynode": flaml.tune.uniform(0.2, 1.0),
                    "lambda_l2": flaml.tune.loguniform(1e-3, 10.0),
                    "trees": flaml.tune.lograndint(20, 121),
                },
                points_to_evaluate=[dict(START)],
                seed=seed,
                cost_attr=None,
            )
            result = flaml.tune.run(judge, search_alg=search, num_samples=SETTINGS, verbose=0)
            self.settings = dict(result.best_config)
        self._model = _model_with(self.settings)
        self._model.fit(features, labels, groups, seed=seed)

    def predict(self, features: Matrix) -> Prediction:
        return self._model.predict(features)

    def save(self) -> bytes:
        return pack(KIND, {"settings": dict(self.settings)}, {"model": as_array(self._model.save())})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(KIND, blob)
        model = cls()
        model.settings = dict(numbers["settings"])
        model._model = LightGBM.load(arrays["model"].tobytes())
        return model


def _model_with(settings: Numbered) -> LightGBM:
    own = {name: value for name, value in settings.items() if name != "trees"}
    return LightGBM(own, trees=int(settings["trees"]))
