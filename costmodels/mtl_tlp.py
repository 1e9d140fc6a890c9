"""TLP with one head per domain (MTL-TLP); the shared trunk is trained on all targets."""

from collections.abc import Sequence
from typing import ClassVar, Final, Self, cast

import numpy as np

from costmodels.base import CostModel, Indices, Matrix, Vector
from costmodels.moa_momentum import adapted
from costmodels.serialization import Numbers, unpack
from costmodels.tlp import TLP
from costmodels.transfer_model_base import ManyDomains
from costmodels.views import check_rows
from mallorn.core.errors import InvalidRequest

ONLY: Final = ""  # the domain of rows without one


class MTLTLP(TLP, ManyDomains):
    """A shared trunk, and one head per domain (a target, or a class of hosts).

    `fit_domains` takes the domain of each row; all rows of a group must have the same. `fit`
    treats all rows as one domain. The home domain's head predicts, unless `at` selects
    another. A model made by `on` starts each `fit` from its base's trunk and heads, and adapts
    the trunk and the home head as MoA does; the base is not stored.
    """

    KIND: ClassVar[str] = "mtl-tlp"

    def __init__(self) -> None:
        super().__init__()
        self._base: MTLTLP | None = None

    @classmethod
    def on(cls, base: CostModel) -> Self:
        model = cls.load(base.save())
        model._base = cast(Self, base) if model.learned else None
        return model

    def _forget(self) -> None:
        super()._forget()
        self.domains: tuple[str, ...] = (ONLY,)  # each has a head

    def fit(self, features: Matrix, labels: Vector, groups: Indices, *, seed: int) -> None:
        if self._base is None:
            return super().fit(features, labels, groups, seed=seed)
        check_rows(features, labels, groups)
        learned = adapted(self._base, features, labels, groups, seed=seed) if len(labels) else self._base
        self._members, self._calibrations = learned._members, learned._calibrations

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
        """Train on all domains; predict for `home`. Raises InvalidRequest if it has no row."""
        if len(domains) != len(labels):
            raise InvalidRequest(
                f"{len(labels)} rows are of {len(domains)} domains", hint="give every row one domain"
            )
        names, heads = np.unique([*domains, home], return_inverse=True)
        distinct = tuple(str(name) for name in names)
        _check(home, set(domains))
        self._learn(features, labels, groups, heads[:-1].astype(np.int64), seed)
        self.domains, self._head = distinct, distinct.index(home)

    def at(self, domain: str) -> Self:
        """Return a copy that predicts for another domain. Raises InvalidRequest if unknown."""
        _check(domain, set(self.domains))
        copy = type(self).load(self.save())
        copy._head = copy.domains.index(domain)
        return copy

    def _extra(self) -> Numbers:
        return {"domains": list(self.domains)}

    @classmethod
    def load(cls, blob: bytes) -> Self:
        model = super().load(blob)
        model.domains = tuple(unpack(cls.KIND, blob)[0]["domains"])
        return model


def _check(domain: str, domains: set[str]) -> None:
    if domain not in domains:
        raise InvalidRequest(
            f"no row is of the domain {domain!r}", hint=f"known: {', '.join(sorted(map(repr, domains)))}"
        )
