"""Models that learn several domains (targets, or kinds of host) at once and keep them apart."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from costmodels.base import CostModel, Indices, Matrix, Vector


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

    @classmethod
    @abstractmethod
    def on(cls, base: CostModel) -> Self:
        """A model whose `fit` goes on from what a base has learned of all its domains, and not anew."""

    @classmethod
    def stands_on(cls, kind: type[CostModel]) -> bool:
        """True if a model of this kind can be its base: one with the same trunk."""
        return issubclass(kind, cls)
