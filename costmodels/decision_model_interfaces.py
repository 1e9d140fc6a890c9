"""Models that also say how to go on: which next decision good schedules took behind these."""

from abc import abstractmethod

from costmodels.base import CostModel, Matrix, Vector


class ProposesDecisions(CostModel):
    """A model of the view `decisions` from which schedules can be drawn, one decision after the other.

    Contract, beside that of CostModel
    - `liking` takes rows in which what is undecided is NaN (`costmodels.partial_schedules`), and answers for
      the last decision of each, in one vectorised pass. Among rows that agree in all but that
      decision, a softmax is the share of good schedules that took each.
    - Before any data all rows are liked alike.
    """

    @abstractmethod
    def liking(self, features: Matrix) -> Vector:
        """For each row how much good schedules took its last decision, as a logarithm."""


class ValuesPrefixes(CostModel):
    """A model of the view `decisions` for which an open decision may be missing.

    Contract, beside that of CostModel
    - `value` takes rows in which what is undecided is NaN (`costmodels.partial_schedules`), and answers with
      the score of the best way to complete each, in one vectorised pass.
    - The value of a row without NaN is what `predict` says of it.
    """

    @abstractmethod
    def value(self, features: Matrix) -> Vector:
        """For each row the score that its best completion reaches."""
