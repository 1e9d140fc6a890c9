"""Models that also say what is still possible: the value of a schedule that is decided in part."""

from abc import abstractmethod

from costmodels.base import CostModel, Matrix, Vector


class ValuesPrefixes(CostModel):
    """A model of the view `decisions` for which an open decision may be missing.

    Contract, beside that of CostModel
    - `value` takes rows in which what is undecided is NaN (`costmodels.prefixes`), and answers with the score
      of the best way to complete each, in one vectorised pass.
    - The value of a row without NaN is what `predict` says of it.
    """

    @abstractmethod
    def value(self, features: Matrix) -> Vector:
        """For each row the score that its best completion reaches."""
