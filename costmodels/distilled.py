"""Distillation across hardware (TCL): a network of another target teaches one for the rows of this target."""

from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from costmodels.base import CostModel, Matrix, Prediction, Vector
from costmodels.based import Based
from costmodels.blobs import Arrays, Numbers, as_array
from costmodels.checks import check_rows
from costmodels.metrics import Groups, members
from costmodels.neural import Neural
from costmodels.tlp import TLP
from costmodels.training import of_times, timed
from costmodels.views import PRIMITIVES, VIEWS, View
from mallorn.core.errors import InvalidRequest

TRUSTED: Final = 16.0  # rows of a task after which its measurements weigh as much as the teacher

STEPS: Final = 300  # of a student
CROSSINGS: Final = 4  # for each measured row
MOST_CROSSINGS: Final = 1000

Lessons = tuple[Matrix, Vector, Groups]


class TCL(Based):
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
    view: ClassVar[str] = PRIMITIVES.name

    def __init__(self, base: CostModel | None = None) -> None:
        network = base or TLP()
        if not isinstance(network, Neural):
            raise InvalidRequest(
                f"{type(base).__name__} is no network that could teach another",
                hint="take a base of tlp, mtl-tlp, gnn or tree-lstm, or the cost model residual",
            )
        super().__init__(network)
        self._teacher: Neural = network
        self._student: Neural | None = None

    @classmethod
    def stands_on(cls, kind: type[CostModel]) -> bool:
        return issubclass(kind, Neural)

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._student = None
        if not len(labels):
            return
        if self._teacher.learned:
            self._student = self._teacher.tuned(
                *self._lessons(features, labels, groups, seed), steps=STEPS, seed=seed
            )
        else:
            self._student = type(self._teacher)()
            self._student.fit(features, labels, groups, seed=seed)

    def _lessons(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Lessons:
        """The rows with softened labels, and crossings of them that nobody measured: the teacher's alone."""
        known = self._teacher.predict(features).mean
        drawn, parents = crossed(features, groups, VIEWS[self.view], np.random.default_rng(seed))
        best = np.array([known[groups == group].max() for group in groups[parents]], dtype=np.float32)
        guessed = of_times(np.minimum(self._teacher.predict(drawn).mean - best, 0))
        return (
            np.concatenate([features, drawn]),
            np.concatenate([softened(labels, known, groups), guessed]),
            np.concatenate([groups, groups[parents]]),
        )

    def predict(self, features: Matrix) -> Prediction:
        return (self._student or self._base).predict(features)

    def _local(self) -> tuple[Numbers, Arrays]:
        return {}, {"student": as_array(self._student.save())} if self._student else {}

    def _restore(self, numbers: Numbers, arrays: Arrays) -> None:
        if "student" in arrays:
            self._student = type(self._teacher).load(arrays["student"].tobytes())


def crossed(
    features: Matrix, groups: Groups, view: View, rng: np.random.Generator
) -> tuple[Matrix, NDArray[np.int64]]:
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
