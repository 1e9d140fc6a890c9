"""Transfer models, which build on a base model trained elsewhere and are stored with it."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Self, cast

from mallorn.core.errors import InvalidRequest
from mallorn.core.registry import find_name, list_names, resolve
from mallorn.costmodels.base import CostModel, Indices, Matrix, Vector
from mallorn.costmodels.serialization import Arrays, Numbers, as_array, pack, unpack


class TransferModel(CostModel):
    """A model that adapts a pretrained base model to new rows; create it with `on`.

    `fit` does not change the base. The model reads the base's view; until it is fit on any
    rows, it predicts what the base predicts.
    """

    KIND: ClassVar[str]
    builds_on_base: ClassVar[bool] = True

    def __init__(self, base: CostModel) -> None:
        self.base = base

    @classmethod
    def from_base(cls, base: CostModel) -> Self:
        """Return a model that builds on this base and reads the same view."""
        if cls.view == base.view:
            return cls(base)
        kind = type(cls.__name__, (cls,), {"view": base.view, "__module__": cls.__module__})
        return cast(Self, kind(base))

    @classmethod
    def can_extend(cls, kind: type[CostModel]) -> bool:
        return not issubclass(kind, TransferModel)  # a base has no base of its own

    @abstractmethod
    def _local_state(self) -> tuple[Numbers, Arrays]:
        """Return what was trained on the new rows, to be stored with the base model."""

    @abstractmethod
    def _restore_local_state(self, numbers: Numbers, arrays: Arrays) -> None:
        """Restore the state that `_local_state` returned."""

    def save(self) -> bytes:
        numbers, arrays = self._local_state()
        header = {"base": name_of(self.base), "local": dict(numbers)}
        return pack(self.KIND, header, {"base": as_array(self.base.save()), **arrays})

    @classmethod
    def load(cls, blob: bytes) -> Self:
        numbers, arrays = unpack(cls.KIND, blob)
        base: Any = resolve("cost_model", numbers["base"])
        model = cls.from_base(base.load(arrays["base"].tobytes()))
        model._restore_local_state(numbers["local"], arrays)
        return model


def name_of(model: CostModel) -> str:
    """Return a model's registered name. Raises InvalidRequest if it has none."""
    place = f"{type(model).__module__}:{type(model).__name__}"
    if (name := find_name("cost_model", place)) is not None:
        return name
    raise InvalidRequest(
        f"{place} is not a registered cost model, so models that extend it cannot be stored",
        hint=f"known: {', '.join(list_names('cost_model'))}",
    )


class ManyDomains(CostModel):
    """A model with an output head per domain (target or class of hosts); `fit` uses one.
    `from_base` returns a model whose `fit` starts from a base trained on several domains."""

    builds_on_base: ClassVar[bool] = True

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
        """Train on rows of several domains (`domains`, one per row); predict for `home`."""

    @classmethod
    def can_extend(cls, kind: type[CostModel]) -> bool:
        return issubclass(kind, cls)  # it needs the same trunk
