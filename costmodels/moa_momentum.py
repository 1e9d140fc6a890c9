"""Momentum adaptation (after Pruner's MoA): a network from elsewhere learns a device, and forgets slowly."""

from abc import abstractmethod
from typing import ClassVar, Final, TypeVar

from costmodels.base import CostModel, Groups, Matrix, Prediction, Vector
from costmodels.serialization import Arrays, Numbers, as_array
from costmodels.tlp import TLP
from costmodels.torch_model import Neural
from costmodels.transfer_model_base import TransferModel
from costmodels.views import PRIMITIVES, check_rows
from mallorn.core.errors import InvalidRequest

MOMENTUM: Final = 0.9
UPDATES: Final = 4
STEPS: Final = 100  # per update

Network = TypeVar("Network", bound=Neural)


def adapted(base: Network, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> Network:
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


class OnNetwork(TransferModel):
    """A network of the base's kind that the base teaches what local rows tell.

    Where the base has no training, the network learns the rows directly.
    """

    STORED: ClassVar[str]  # the name of what was learned, in the bytes
    CANNOT: ClassVar[str]  # what another model is told that it is no network for
    view: ClassVar[str] = PRIMITIVES.name

    def __init__(self, base: CostModel | None = None) -> None:
        network = base or TLP()
        if not isinstance(network, Neural):
            raise InvalidRequest(
                f"{type(base).__name__} {self.CANNOT}",
                hint="take a base of tlp, mtl-tlp, gnn or tree-lstm, or the cost model residual",
            )
        super().__init__(network)
        self._network: Neural = network
        self._learned: Neural | None = None

    @classmethod
    def stands_on(cls, kind: type[CostModel]) -> bool:
        return issubclass(kind, Neural)

    @abstractmethod
    def _taught(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        """What the base makes of the rows."""

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._learned = None
        if not len(labels):
            return
        if self._network.learned:
            self._learned = self._taught(features, labels, groups, seed)
        else:
            self._learned = type(self._network)()
            self._learned.fit(features, labels, groups, seed=seed)

    def predict(self, features: Matrix) -> Prediction:
        return (self._learned or self.base).predict(features)

    def _local(self) -> tuple[Numbers, Arrays]:
        return {}, {self.STORED: as_array(self._learned.save())} if self._learned else {}

    def _restore(self, numbers: Numbers, arrays: Arrays) -> None:
        if self.STORED in arrays:
            self._learned = type(self._network).load(arrays[self.STORED].tobytes())


class MoA(OnNetwork):
    """A neural base that adapts to local rows. A base without training learns them directly.

    Pruner's own (ASPLOS'25) keeps a Siamese copy of the pre-trained weights throughout a search: every fourth
    online update begins with it, and then moves it a hundredth of the way (momentum 0.99). Here nothing is
    kept between refits: each makes four updates from the base, all of which begin with the slow weights, and
    these move a tenth of the way (momentum 0.9).
    """

    KIND: ClassVar[str] = "moa"
    STORED: ClassVar[str] = "adapted"
    CANNOT: ClassVar[str] = "has no layers that could adapt"

    def _taught(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        return adapted(self._network, features, labels, groups, seed=seed)
