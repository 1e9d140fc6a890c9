"""Distillation across hardware (TCL): a network of another target teaches one for the rows of this target."""

from typing import ClassVar, Final

import numpy as np

from costmodels.base import Groups, Indices, Matrix, Vector
from costmodels.labels import of_times, timed
from costmodels.metrics import members
from costmodels.moa_momentum import OnNetwork
from costmodels.torch_model import Neural
from costmodels.views import VIEWS, View

TRUSTED: Final = 16.0  # rows of a task after which its measurements weigh as much as the teacher

STEPS: Final = 300  # of a student
CROSSINGS: Final = 4  # for each measured row
MOST_CROSSINGS: Final = 1000

Lessons = tuple[Matrix, Vector, Groups]


class TCL(OnNetwork):
    """A student learns the measurements of its own target, softened by what a teacher makes of the same rows.

    After TCL (2026): bases learn from rows that were chosen actively (`mallorn pretrain --choose`), and what
    they know is distilled into a model of another platform, so that few of its measurements are enough.

    Where it differs: the paper distils into networks that learn target after target without forgetting. Here
    a student stands on one base, begins with its weights, and is distilled anew at each refit. The teacher
    has a say in the order of candidates that ran, and the less the more of a task was measured; what failed
    here failed. `moa` learns the bare measurements and is kept near the base by momentum instead. Without
    rows the teacher answers, and a base without training teaches nothing.
    """

    KIND: ClassVar[str] = "tcl"
    STORED: ClassVar[str] = "student"
    CANNOT: ClassVar[str] = "is no network that could teach another"

    def _taught(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        # Crossings of rows that nobody measured have the teacher's labels alone.
        known = self._network.predict(features).mean
        drawn, parents = crossed(features, groups, VIEWS[self.view], np.random.default_rng(seed))
        best = np.array([known[groups == group].max() for group in groups[parents]], dtype=np.float32)
        guessed = of_times(np.minimum(self._network.predict(drawn).mean - best, 0))
        lessons = (
            np.concatenate([features, drawn]),
            np.concatenate([softened(labels, known, groups), guessed]),
            np.concatenate([groups, groups[parents]]),
        )
        return self._network.tuned(*lessons, steps=STEPS, seed=seed)


def crossed(features: Matrix, groups: Groups, view: View, rng: np.random.Generator) -> tuple[Matrix, Indices]:
    """Rows with lines of two rows of one task, and the place of the first of both."""
    count = min(CROSSINGS * len(features), MOST_CROSSINGS)
    mothers = rng.integers(len(features), size=count)
    fathers = np.array([rng.choice(np.flatnonzero(groups == groups[at])) for at in mothers])
    tables = view.tables(features)
    whose = rng.random((count, view.shape[0])) < 0.5
    shape = (count, view.shape[0], *(1,) * (len(view.shape) - 1))
    mixed = np.where(whose.reshape(shape), tables[mothers], tables[fathers])
    return mixed.reshape(count, -1), mothers


def softened(labels: Vector, taught: Vector, groups: Groups) -> Vector:
    """Labels of times, moved towards the teacher's scores: by half where 16 rows of a task are known."""
    ran, answer = timed(labels), labels.copy()
    for lines in members(groups):
        own = lines[ran[lines]]
        if len(own):
            share = TRUSTED / (TRUSTED + len(own))
            blend = (1 - share) * labels[own] + share * (taught[own] - taught[own].max())
            answer[own] = of_times(np.minimum(blend - blend.max(), 0))
    return answer
