"""Models that learn several targets, or kinds of host, at once and keep something of each."""

from abc import abstractmethod
from collections.abc import Sequence

from costmodels.base import CostModel, Matrix, Vector
from costmodels.descent import Indices


class ManyDomains(CostModel):
    """The seam has no word for domains: `fit` takes all rows for one."""

    @abstractmethod
    def fit_domains(
        self,
        features: Matrix,
        labels: Vector,
        groups: Indices,
        domains: Sequence[str],
        *,
        home: str,
        seed: int,
    ) -> None:
        """Learn from measured candidates of several domains, one domain a row; it answers for `home`."""
