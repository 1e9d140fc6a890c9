"""Which cost models run where: told by libraries, which are looked for and not imported."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from mallorn.core.registry import REGISTRY

#: What each cost model imports beside numpy. No name of a user's own is here: those are taken unseen.
LIBRARIES: Final[dict[str, frozenset[str]]] = {
    "xgboost": frozenset({"xgboost"}),
    "lightgbm": frozenset({"lightgbm"}),
    "lightgbm-rank": frozenset({"lightgbm"}),
    "forest": frozenset({"sklearn"}),
    "lfbo": frozenset({"sklearn"}),
    "headfirst": frozenset({"sklearn"}),
    "mlp": frozenset({"threadpoolctl"}),
    "tlp": frozenset({"torch"}),
    "mtl-tlp": frozenset({"torch"}),
    "gnn": frozenset({"torch"}),
    "tree-lstm": frozenset({"torch"}),
    "pacm": frozenset({"torch"}),
    "statements": frozenset({"xgboost"}),
    "statements-rank": frozenset({"xgboost"}),
    "residual": frozenset({"xgboost"}),
    "value": frozenset({"xgboost"}),
    "generator": frozenset({"xgboost"}),
    "automl": frozenset({"flaml", "lightgbm"}),
}
#: Models that are made of others.
PARTS: Final = {
    "ensemble": ("draft", "xgboost", "lightgbm", "forest", "mlp"),
    "moa": ("tlp",),
    "tcl": ("tlp",),
}
EXTRAS: Final = {"flaml": "automl", "torch": "neural"}  # of all others: `worker`


def libraries_of(cost_model: str) -> frozenset[str]:
    """What a cost model imports, its parts included."""
    own = LIBRARIES.get(cost_model, frozenset())
    return own.union(*(libraries_of(part) for part in PARTS.get(cost_model, ())))


def runnable() -> list[str]:
    """The cost models that this process can run."""
    there = {name for name in frozenset().union(*LIBRARIES.values()) if find_spec(name)}
    return [name for name in REGISTRY["cost_model"] if libraries_of(name) <= there]


def extras_of(libraries: Iterable[str]) -> str:
    """The extras that have these libraries, as pip takes them."""
    return ",".join(sorted({EXTRAS.get(name, "worker") for name in libraries}))
