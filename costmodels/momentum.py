"""Momentum adaptation (after Pruner's MoA): a network from elsewhere learns a device, and forgets slowly."""

from typing import ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from costmodels.base import CostModel, Matrix, Prediction, Vector
from costmodels.based import Based
from costmodels.blobs import Arrays, Numbers, as_array
from costmodels.checks import check_rows
from costmodels.neural import Neural
from costmodels.tlp import TLP
from costmodels.views import PRIMITIVES
from mallorn.core.errors import InvalidRequest

MOMENTUM: Final = 0.9
UPDATES: Final = 4
STEPS: Final = 100  # per update

Network = TypeVar("Network", bound=Neural)


def adapted(
    base: Network, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int
) -> Network:
    """The base after updates on the local rows, oldest first: a pure function of base, rows and seed.

    Each update starts from the slow weights, learns all rows so far, and moves the slow weights a tenth of
    the way. So a few unusual rows do not erase the base.
    """
    slow = fast = base
    for update in range(1, UPDATES + 1):
        known = -(-len(labels) * update // UPDATES)
        rows = slice(0, known)
        fast = slow.tuned(features[rows], labels[rows], groups[rows], steps=STEPS, seed=seed + update)
        slow = slow.towards(fast, 1 - MOMENTUM)
    return fast


class MoA(Based):
    """A neural base that adapts to local rows. A base without training learns them directly.

    Pruner's own (ASPLOS'25) keeps a Siamese copy of the pre-trained weights throughout a search: every fourth
    online update begins with it, and then moves it a hundredth of the way (momentum 0.99). Here nothing is
    kept between refits: each makes four updates from the base, all of which begin with the slow weights, and
    these move a tenth of the way (momentum 0.9).
    """

    KIND: ClassVar[str] = "moa"
    view: ClassVar[str] = PRIMITIVES.name

    def __init__(self, base: CostModel | None = None) -> None:
        network = base or TLP()
        if not isinstance(network, Neural):
            raise InvalidRequest(
                f"{type(base).__name__} has no layers that could adapt",
                hint="take a base of tlp, mtl-tlp, gnn or tree-lstm, or the cost model residual",
            )
        super().__init__(network)
        self._network: Neural = network
        self._adapted: Neural | None = None

    @classmethod
    def stands_on(cls, kind: type[CostModel]) -> bool:
        return issubclass(kind, Neural)

    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._adapted = None
        if not len(labels):
            return
        if self._network.learned:
            self._adapted = adapted(self._network, features, labels, groups, seed=seed)
        else:
            self._adapted = type(self._network)()
            self._adapted.fit(features, labels, groups, seed=seed)

    def predict(self, features: Matrix) -> Prediction:
        return (self._adapted or self._base).predict(features)

    def _local(self) -> tuple[Numbers, Arrays]:
        return {}, {"adapted": as_array(self._adapted.save())} if self._adapted else {}

    def _restore(self, numbers: Numbers, arrays: Arrays) -> None:
        if "adapted" in arrays:
            self._adapted = type(self._network).load(arrays["adapted"].tobytes())
