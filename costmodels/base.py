"""The CostModel seam: predict which candidates of a family are fast."""

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
    """Scores (higher is faster: log of the task's best latency over the candidate's) and their spread."""

    mean: Vector
    std: Vector


class CostModel(ABC):
    """Learns one family on one target.

    Contract
    - `fit` replaces what was learned before. Rows of one group (a task) are compared with each other only.
      Labels are at most 0: log(best latency of the group / latency). Failures carry FAILED_LABEL; runs that
      were cut off carry LATE_LABEL, a lower bound on how slow they are. No measured time has either label.
    - The same data and seed give the same model on the same machine.
    - `predict` never fails on rows of the right width, and answers in one vectorised pass.
    - `save`/`load` use no pickle; a loaded model predicts what the saved one did.
    - `view` names the columns that it reads (`costmodels.views`).
    """

    view: ClassVar[str] = "decisions"
    opener: ClassVar[str | None] = None
    """The searcher that a base of it opens a task with that nobody measured; None: that of the job."""
    untaught: ClassVar[bool] = False
    """Whether it knows what is fast without any measurement, by the machine that it is made for."""

    @classmethod
    def made_for(cls, machine: Machine | None) -> "CostModel":
        """A model that has learned nothing, for candidates of this machine; None: nobody knows it."""
        del machine  # most learn it from what was measured
        return cls()

    @abstractmethod
    def fit(self, features: Matrix, labels: Vector, groups: NDArray[np.int64], *, seed: int) -> None:
        """Learn from measured candidates."""

    @abstractmethod
    def predict(self, features: Matrix) -> Prediction:
        """Score candidates of any task of the family."""

    @abstractmethod
    def save(self) -> bytes:
        """The model as bytes that another process can load."""

    @classmethod
    @abstractmethod
    def load(cls, blob: bytes) -> "CostModel":
        """The model that `save` wrote."""


FAILED_LABEL = -4.0
LATE_LABEL = -3.5  # 33 times slower than the best
