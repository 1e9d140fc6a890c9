"""The contract of a kind of hardware in the graph compiler.

The rest of Mallorn knows kinds by `TargetKind`; exports take this package alone along, with the
folders `graph` of the kinds of hardware.
"""

import importlib
from collections.abc import Mapping
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


def graph_kind(tvm_kind: str) -> GraphKind:
    """Return what the graph compiler does for targets of this kind of TVM."""
    place = KINDS.get(tvm_kind) or _of_packages().get(tvm_kind)
    return GraphKind() if place is None else _load(place)


def all_graph_kinds() -> list[GraphKind]:
    return [_load(place) for place in (_of_packages() | KINDS).values()]


def _of_packages() -> dict[str, str]:
    return {entry.name: entry.value for entry in entry_points(group="mallorn.graph_kind")}


def _load(place: str) -> GraphKind:
    module, _, name = place.partition(":")
    kind: GraphKind = getattr(importlib.import_module(module), name)()
    return kind


def graph_kind_of(target: Any) -> GraphKind:
    return graph_kind(str(target.kind.name))
