"""The interface of cost models, which predict how fast candidate schedules run."""

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mallorn.core.values.machine import Machine

Matrix = NDArray[np.float32]
Vector = NDArray[np.float32]
Column = NDArray[np.float64]
Indices = NDArray[np.int64]
Groups = NDArray[np.int64]  # the task of each row


class Prediction(NamedTuple):
    """Predicted log(best latency of its task / latency) of each row, and its deviation."""

    mean: Vector
    std: Vector


class CostModel(ABC):
    """A model of a family (tasks with a common cost model) on one target.

    Contract
    - `fit` discards earlier training. Rows are only compared within their group (a task).
      Labels are at most 0: log(best latency of the group / latency). Failures have
      FAILED_LABEL. Runs that timed out have LATE_LABEL, an upper bound of their true label.
      No measured time has either label.
    - The same data and seed give the same model on the same machine.
    - `predict` never fails on rows of the right width, and scores all in one vector pass.
    - `save`/`load` use no pickle; a loaded model predicts what the saved one did.
    - `view` names the set of features that the model reads (`mallorn.costmodels.views`).
    """

    view: ClassVar[str] = "decisions"
    opener: ClassVar[str | None] = None
    """Searcher for a task's first round if this is a base model; None: the job's searcher."""
    untaught: ClassVar[bool] = False
    """Whether the model can rank candidates without training, from its machine's constants."""

    orders_unfitted: ClassVar[bool] = False
    """Whether the model ranks a family's first candidates before it was ever fitted."""

    builds_on_base: ClassVar[bool] = False
    """Whether a new model starts from a base model, if there is one that `can_extend` accepts."""

    @classmethod
    def made_for(cls, machine: Machine | None) -> "CostModel":
        """Return an untrained model for a machine; `machine` is None if none was probed."""
        del machine  # most models learn the machine from measurements
        return cls()

    @classmethod
    def can_extend(cls, kind: type["CostModel"]) -> bool:
        """Return whether `from_base` accepts a base model of class `kind`."""
        return False

    @classmethod
    def from_base(cls, base: "CostModel") -> "CostModel":
        """Return a model that builds on a base model. Called only if `builds_on_base`."""
        raise NotImplementedError

    @abstractmethod
    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        """Train on up to a million measured candidates, or on a share of them."""

    @abstractmethod
    def predict(self, features: Matrix) -> Prediction:
        """Score candidates of any task of the family, one per row of features."""

    @abstractmethod
    def save(self) -> bytes:
        """Return the model as bytes, which another process can load."""

    @classmethod
    @abstractmethod
    def load(cls, blob: bytes) -> "CostModel":
        """Return the model that `save` wrote. Raises InvalidRequest for invalid bytes."""


FAILED_LABEL = -4.0
LATE_LABEL = -3.5  # 33 times slower than the best
