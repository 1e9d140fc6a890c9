"""The libraries that cost models need, and which models can run here; nothing is imported."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import Final

from mallorn.core.registry import REGISTRY

#: Libraries of each cost model besides numpy. Users' own models are assumed to have theirs.
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
#: Models that consist of other models.
PARTS: Final = {
    "ensemble": ("draft", "xgboost", "lightgbm", "forest", "mlp"),
    "moa": ("tlp",),
    "tcl": ("tlp",),
}
EXTRAS: Final = {"flaml": "automl", "torch": "neural"}  # all other libraries: `worker`


def libraries_of(cost_model: str) -> frozenset[str]:
    """Return the libraries that a cost model and its parts import."""
    own = LIBRARIES.get(cost_model, frozenset())
    return own.union(*(libraries_of(part) for part in PARTS.get(cost_model, ())))


def runnable() -> list[str]:
    """Return the registered cost models whose libraries are installed here."""
    installed = {name for name in frozenset().union(*LIBRARIES.values()) if find_spec(name)}
    return [name for name in REGISTRY["cost_model"] if libraries_of(name) <= installed]


def extras_of(libraries: Iterable[str]) -> str:
    """Return the extras that install these libraries, as a comma-separated list for pip."""
    return ",".join(sorted({EXTRAS.get(name, "worker") for name in libraries}))
