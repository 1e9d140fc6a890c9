"""The contract of a kind of hardware in the graph compiler.

The rest of Mallorn knows kinds by `TargetKind`; exports take this package alone along, with
the folders `graph` of the kinds of hardware.
"""

import importlib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Final

#: By TVM's kind of target: where its class is. Packages add others by entry points in
#: the group ``mallorn.graph_kind``.
KINDS: Final = {"cuda": "mallorn.kinds.cuda.graph.cuda_graph:CudaGraph"}


class GraphKind:
    """What the graph compiler does for a kind of hardware; here for a CPU."""

    #: Options of TVM's passes that generate code.
    pass_options: ClassVar[Mapping[str, object]] = {}
    #: Options of the passes that build a whole network.
    build_options: ClassVar[Mapping[str, object]] = {}
    #: Rules of TVM that its own replace, as MODULE:CLASS, by the name in recipes.
    replaced_rules: ClassVar[Mapping[str, str]] = {}
    #: Passes of its own, as MODULE, by name.
    passes: ClassVar[Mapping[str, str]] = {}

    def prepare_stock_tvm(self) -> None:
        """Let TVM find compilers and runtimes; called before TVM is imported."""

    def load_instructions(self, records: str) -> None:
        """Register the instructions that tuning records name."""


def graph_kinds() -> Mapping[str, GraphKind]:
    """Return the kinds that load and differ from a CPU, by TVM's kind of target."""
    return {name: kind for name, kind in load_graph_kinds().items() if isinstance(kind, GraphKind)}


@cache  # looking for packages takes milliseconds, and each compilation asks
def load_graph_kinds() -> Mapping[str, GraphKind | str]:
    """Return the kinds; for one that does not load, the reason."""
    packages = {entry.name: entry.value for entry in entry_points(group="mallorn.graph_kind")}
    return {name: _load(place) for name, place in (packages | KINDS).items()}


def _load(place: str) -> GraphKind | str:
    module, _, name = place.partition(":")
    try:
        kind: GraphKind = getattr(importlib.import_module(module), name)()
    except BaseException as error:  # an imported module may raise anything, even SystemExit
        if place in KINDS.values() or isinstance(error, KeyboardInterrupt):
            raise
        return f"{place} does not load: {type(error).__name__}: {error}"
    return kind


def graph_kind(tvm_kind: str) -> GraphKind:
    """Return what it does for targets of this kind of TVM. Raises ImportError."""
    kind = load_graph_kinds().get(tvm_kind) or GraphKind()
    if isinstance(kind, str):
        raise ImportError(f"{kind}; repair or uninstall its package")
    return kind


def graph_kind_of(target: Any) -> GraphKind:
    return graph_kind(str(target.kind.name))
