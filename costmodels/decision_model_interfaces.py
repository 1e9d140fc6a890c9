"""Interfaces of cost models that also rate partial schedules."""

from abc import abstractmethod

from costmodels.base import CostModel, Matrix, Vector


class ProposesDecisions(CostModel):
    """A model of the view `decisions` from which schedules can be sampled decision by decision.

    Contract, in addition to that of CostModel
    - `liking` takes rows whose open decisions are NaN (`costmodels.partial_schedules`), and rates
      the last decision of each, in one vectorised pass. Over rows that differ only in that decision,
      a softmax of the ratings gives the share of good schedules that took each.
    - Without training, all rows get the same rating.
    """

    @abstractmethod
    def liking(self, features: Matrix) -> Vector:
        """Return per row the logit that good schedules take its last decision."""


class ValuesPrefixes(CostModel):
    """A model of the view `decisions` that can also score partial schedules.

    Contract, in addition to that of CostModel
    - `value` takes rows whose open decisions are NaN (`costmodels.partial_schedules`), and returns
      the score of the best completion of each, in one vectorised pass.
    - The value of a row without NaN is the mean that `predict` returns for it.
    """

    @abstractmethod
    def value(self, features: Matrix) -> Vector:
        """Return per row the score of its best completion."""
