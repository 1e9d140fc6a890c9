"""Momentum adaptation (Pruner's MoA): adapt a pretrained network slowly to a new device."""

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
    """Return the base after UPDATES updates on growing prefixes of the local rows, oldest first.

    Each update fine-tunes the slow weights on all rows so far, and then moves the slow weights
    a tenth of the way to the result, so that a few unusual rows do not erase the base. The
    result depends only on base, rows and seed.
    """
    slow = fast = base
    for update in range(1, UPDATES + 1):
        count = -(-len(labels) * update // UPDATES)
        rows = slice(0, count)
        fast = slow.tuned(features[rows], labels[rows], groups[rows], steps=STEPS, seed=seed + update)
        slow = slow.towards(fast, 1 - MOMENTUM)
    return fast


class OnNetwork(TransferModel):
    """A network of the base's class, trained from the base on local rows.

    If the base is untrained, a new network is trained on the rows directly.
    """

    STORED: ClassVar[str]  # name of the trained network in the saved bytes
    CANNOT: ClassVar[str]  # why a base that is no network is refused, for the error message
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
    def _from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        """Return a network trained from the base on these rows."""

    def fit(self, features: Matrix, labels: Vector, groups: Groups, *, seed: int) -> None:
        check_rows(features, labels, groups)
        self._learned = None
        if not len(labels):
            return
        if self._network.learned:
            self._learned = self._from_base(features, labels, groups, seed)
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
    """A neural base model that adapts to local rows with momentum.

    Pruner (ASPLOS'25) keeps a Siamese copy of the pretrained weights throughout a search:
    every fourth online update starts from the copy, and then moves it a hundredth of the way
    (momentum 0.99). Here no state is kept between refits: each refit makes four updates from
    the base, all of which start from the slow weights and then move these a tenth of the way
    (momentum 0.9).
    """

    KIND: ClassVar[str] = "moa"
    STORED: ClassVar[str] = "adapted"
    CANNOT: ClassVar[str] = "has no layers that could adapt"

    def _from_base(self, features: Matrix, labels: Vector, groups: Groups, seed: int) -> Neural:
        return adapted(self._network, features, labels, groups, seed=seed)
