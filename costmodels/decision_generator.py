"""Draws schedules as good ones were decided: trees over prefixes, and trees that score whole schedules."""

from typing import ClassVar, Final

import numpy as np

from costmodels.base import Groups, Matrix, Vector
from costmodels.decision_model_interfaces import ProposesDecisions
from costmodels.ensemble_spread import LARGEST, finite
from costmodels.generator_examples import choices_of
from costmodels.prefix_boosters import PrefixBoosters
from costmodels.xgboost_ensemble import as_data, classify, opinions

MEMBERS: Final = 2


class GeneratorModel(PrefixBoosters, ProposesDecisions):
    """Boosters that tell a good schedule's next decision from others, beside boosters on whole schedules.

    After "Enabling Tensor Language Model to Assist in Generating High-Performance Tensor Programs" (TLM,
    OSDI'24): what was measured is read as sentences of decisions, and a model of the next word, which knows
    the task, writes new ones. Each decision of the best schedules of a task is an example, and so are
    decisions that other rows of the sketch took in its place; the odds between them are what a softmax over
    the options of the next decision needs (noise contrastive estimation).

    Where it differs: the paper pre-trains a transformer of some hundred million weights on random programs,
    then tunes it to good ones. Here boosters over the columns that all tasks share learn from the dataset's
    rows in seconds, and what is drawn is chosen by the model of whole schedules.
    """

    KIND: ClassVar[str] = "generator"
    opener: ClassVar[str | None] = "generator"

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        self._whole.fit(features, labels, groups, seed=seed)
        self._boosters = []
        if len(labels):
            rng = np.random.default_rng([seed, 1])
            choices = choices_of(finite(features), labels, groups, rng)
            if choices.taken.any() and not choices.taken.all():
                data = as_data(choices.rows, choices.taken)
                self._boosters = [classify(data, choices.weights, rng) for _ in range(MEMBERS)]

    def liking(self, features: Matrix) -> Vector:
        if not self._boosters:
            return np.zeros(len(features), dtype=np.float32)
        share = opinions(self._boosters, np.clip(features, -LARGEST, LARGEST)).mean(axis=0)
        return np.asarray(np.log(share) - np.log1p(-share), dtype=np.float32)
