"""TLP with a head a domain (MTL-TLP): what all targets have in common is learned from all of them."""

from collections.abc import Sequence
from typing import Any, ClassVar, Final, Self

import numpy as np

from costmodels.base import Matrix, Vector
from costmodels.blobs import unpack
from costmodels.descent import Indices
from costmodels.domains import ManyDomains
from costmodels.tlp import TLP
from mallorn.core.errors import InvalidRequest

ONLY: Final = ""  # the domain of rows that nobody gave one


class MTLTLP(TLP, ManyDomains):
    """One trunk, and a head for each domain: a target, or a kind of host.

    The rows of a group are of one domain, which `fit_domains` is told; `fit` takes all rows for one domain,
    as the seam has no word for it. The head of the home domain answers, until `at` turns to another.
    """

    KIND: ClassVar[str] = "mtl-tlp"

    def _forget(self) -> None:
        super()._forget()
        self._domains: tuple[str, ...] = (ONLY,)

    @property
    def domains(self) -> tuple[str, ...]:
        """Those that have a head."""
        return self._domains

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
        """The head of `home` answers from then on. Raises InvalidRequest where no row is of it."""
        if len(domains) != len(labels):
            raise InvalidRequest(
                f"{len(labels)} rows are of {len(domains)} domains", hint="give every row one domain"
            )
        names, heads = np.unique([*domains, home], return_inverse=True)
        known = tuple(str(name) for name in names)
        _check(home, set(domains))
        self._learn(features, labels, groups, heads[:-1].astype(np.int64), seed)
        self._domains, self._head = known, known.index(home)

    def at(self, domain: str) -> Self:
        """The same model, answering for another of its domains."""
        _check(domain, set(self._domains))
        copy = type(self).load(self.save())
        copy._head = copy._domains.index(domain)
        return copy

    def _extra(self) -> dict[str, Any]:
        return {"domains": list(self._domains)}

    @classmethod
    def load(cls, blob: bytes) -> Self:
        model = super().load(blob)
        model._domains = tuple(unpack(cls.KIND, blob)[0]["domains"])
        return model


def _check(domain: str, known: set[str]) -> None:
    if domain not in known:
        raise InvalidRequest(
            f"no row is of the domain {domain!r}", hint=f"known: {', '.join(sorted(map(repr, known)))}"
        )
