"""Generate schedules with decisions like those of good ones: boosters on prefixes."""

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
    """Boosters that recognise good schedules' next decisions, and boosters on full schedules.

    After "Enabling Tensor Language Model to Assist in Generating High-Performance Tensor
    Programs" (TLM, OSDI'24): measured schedules are treated as sentences of decisions, and a
    model of the next word, conditioned on the task, generates new ones. Each decision of a
    task's best schedules is a positive example; decisions that other rows of the sketch took
    instead are negative ones. Their log odds are the logits of a softmax over the next
    decision (noise contrastive estimation).

    Differences: the paper pretrains a transformer of some hundred million weights on random
    programs, then fine-tunes it on good ones. Here boosters on the columns that all tasks
    share are trained on the dataset's rows in seconds, and the model of full schedules picks
    from the generated candidates.
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
