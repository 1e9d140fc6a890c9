"""TLP with one head per domain (MTL-TLP): the trunk learns from all targets."""

from collections.abc import Sequence
from typing import ClassVar, Final, Self

import numpy as np

from costmodels.base import Matrix, Vector
from costmodels.blobs import Numbers, unpack
from costmodels.descent import Indices
from costmodels.domains import ManyDomains
from costmodels.tlp import TLP
from mallorn.core.errors import InvalidRequest

ONLY: Final = ""  # the domain of rows without one


class MTLTLP(TLP, ManyDomains):
    """One trunk, and a head for each domain: a target, or a kind of host.

    All rows of a group are of one domain, given to `fit_domains`; `fit` treats all rows as one domain. The
    head of the home domain predicts, unless `at` selects another.
    """

    KIND: ClassVar[str] = "mtl-tlp"

    def _forget(self) -> None:
        super()._forget()
        self._domains: tuple[str, ...] = (ONLY,)

    @property
    def domains(self) -> tuple[str, ...]:
        """The domains that have a head."""
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
        """Learn all domains and predict for `home`. Raises InvalidRequest if no row is of `home`."""
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
        """The same model, predicting for another of its domains."""
        _check(domain, set(self._domains))
        copy = type(self).load(self.save())
        copy._head = copy._domains.index(domain)
        return copy

    def _extra(self) -> Numbers:
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
