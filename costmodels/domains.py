"""Models that learn several domains (targets, or kinds of host) at once and keep them apart."""

from abc import abstractmethod
from collections.abc import Sequence

from costmodels.base import CostModel, Matrix, Vector
from costmodels.descent import Indices


class ManyDomains(CostModel):
    """A model with a head per domain. `CostModel.fit` knows no domains and treats all rows as one."""

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
        """Learn from candidates of several domains, one domain per row; predictions are for `home`."""
