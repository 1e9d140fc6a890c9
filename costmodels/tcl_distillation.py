"""Distillation across hardware (TCL): the teacher is another target's network."""

from typing import ClassVar, Final

import numpy as np

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.labels import of_times, timed
from costmodels.metrics import members
from costmodels.moa_momentum import OnNetwork
from costmodels.torch_model import Neural
from costmodels.views import VIEWS, View

TRUSTED: Final = 16.0  # rows of a task at which its measurements weigh as much as the teacher

STEPS: Final = 300  # training steps of a student
CROSSINGS: Final = 4  # crossed rows per measured row
MOST_CROSSINGS: Final = 1000

Lessons = tuple[Matrix, Vector, Groups]


class TCL(OnNetwork):
    """A student network trained on its target's labels, blended with a teacher's scores.

    After TCL (2026): base models are trained on actively selected rows
    (`mallorn pretrain --choose`) and distilled into a model of another platform, which then
    needs few measurements of its own.

    Differences: the paper distils into networks that are trained on one target after another
    without forgetting. Here a student has one base, starts from its weights, and is distilled
    again at each refit. The teacher's scores only change labels of candidates that ran, and
    count less the more of a task was measured; failures stay failures. (`moa` uses plain
    labels and stays near the base by momentum.) Without rows the teacher predicts; an
    untrained base is no teacher.
    """

    KIND: ClassVar[str] = "tcl"
    STORED: ClassVar[str] = "student"
    CANNOT: ClassVar[str] = "is no network that could teach another"

    def _from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        # Crossed rows were not measured: the teacher alone labels them.
        taught = self._network.predict(features).mean
        drawn, parents = crossed(features, groups, VIEWS[self.view], np.random.default_rng(seed))
        best = np.array([taught[groups == group].max() for group in groups[parents]], dtype=np.float32)
        guessed = of_times(np.minimum(self._network.predict(drawn).mean - best, 0))
        lessons = (
            np.concatenate([features, drawn]),
            np.concatenate([softened(labels, taught, groups), guessed]),
            np.concatenate([groups, groups[parents]]),
        )
        return self._network.tuned(*lessons, steps=STEPS, seed=seed)


def crossed(features: Matrix, groups: Groups, view: View, rng: np.random.Generator) -> tuple[Matrix, Indices]:
    """Return rows that mix lines of two rows of one task, and the index of the first row."""
    count = min(CROSSINGS * len(features), MOST_CROSSINGS)
    mothers = rng.integers(len(features), size=count)
    fathers = np.array([rng.choice(np.flatnonzero(groups == groups[index])) for index in mothers])
    tables = view.tables(features)
    is_mothers = rng.random((count, view.shape[0])) < 0.5
    shape = (count, view.shape[0], *(1,) * (len(view.shape) - 1))
    mixed = np.where(is_mothers.reshape(shape), tables[mothers], tables[fathers])
    return mixed.reshape(count, -1), mothers


def softened(labels: Vector, taught: Vector, groups: Groups) -> Vector:
    """Return labels blended with the teacher's scores, by half for a task with 16 times."""
    has_time, answer = timed(labels), labels.copy()
    for lines in members(groups):
        with_time = lines[has_time[lines]]
        if len(with_time):
            share = TRUSTED / (TRUSTED + len(with_time))
            blend = (1 - share) * labels[with_time] + share * (taught[with_time] - taught[with_time].max())
            answer[with_time] = of_times(np.minimum(blend - blend.max(), 0))
    return answer
