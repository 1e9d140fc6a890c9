"""Models built on another model: a base that was learned elsewhere and is stored with them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from costmodels.base import CostModel, Indices, Matrix, Vector
from costmodels.serialization import Arrays, Numbers, as_array, pack, unpack
from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import REGISTRY, resolve


class TransferModel(CostModel):
    """Made by `on`; `fit` learns from local rows and does not change the base.

    It reads its base's view: ask the instance for `view`. Without local rows it predicts as its base.
    """

    KIND: ClassVar[str]

    def __init__(self, base: CostModel) -> None:
        self.base = base

    @classmethod
    def on(cls, base: CostModel) -> Self:
        """A model that stands on this base, and reads what it reads."""
        if cls.view == base.view:
            return cls(base)
        kind = type(cls.__name__, (cls,), {"view": base.view, "__module__": cls.__module__})
        return cast(Self, kind(base))

    @classmethod
    def stands_on(cls, kind: type[CostModel]) -> bool:
        """True if a model of this kind can be its base; one that stands on a base itself cannot."""
        return not issubclass(kind, TransferModel)

    @abstractmethod
    def _local(self) -> tuple[Numbers, Arrays]:
        """The state that was learned from local rows."""

    @abstractmethod
    def _restore(self, numbers: Numbers, arrays: Arrays) -> None:
        """Restore the state that `_local` returned."""

    def save(self) -> bytes:
        numbers, arrays = self._local()
        whose = {"base": name_of(self.base), "local": dict(numbers)}
        return pack(self.KIND, whose, {"base": as_array(self.base.save()), **arrays})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        base: Any = resolve("cost_model", numbers["base"])
        model = cls.on(base.load(arrays["base"].tobytes()))
        model._restore(numbers["local"], arrays)
        return model


def name_of(model: CostModel) -> str:
    """The name under which a model is registered."""
    place = f"{type(model).__module__}:{type(model).__name__}"
    for name, registered in REGISTRY["cost_model"].items():
        if registered == place:
            return name
    raise InvalidRequest(
        f"{place} is no registered cost model, so nothing that stands on it can be stored",
        hint=f"known: {', '.join(sorted(REGISTRY['cost_model']))}",
    )


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
