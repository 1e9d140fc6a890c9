"""The contract of a kind of hardware in the graph compiler.

The rest of Mallorn knows kinds by `TargetKind`; exports take this package alone along, with the
folders `graph` of the kinds of hardware.
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


@cache  # looking for packages takes milliseconds, and each compilation asks
def graph_kinds() -> Mapping[str, GraphKind]:
    """Return the kinds that differ from a CPU, by TVM's kind of target."""
    packages = {entry.name: entry.value for entry in entry_points(group="mallorn.graph_kind")}
    return {tvm_kind: _load(place) for tvm_kind, place in (packages | KINDS).items()}


def _load(place: str) -> GraphKind:
    module, _, name = place.partition(":")
    kind: GraphKind = getattr(importlib.import_module(module), name)()
    return kind


def graph_kind(tvm_kind: str) -> GraphKind:
    """Return what the graph compiler does for targets of this kind of TVM."""
    return graph_kinds().get(tvm_kind) or GraphKind()


def graph_kind_of(target: Any) -> GraphKind:
    return graph_kind(str(target.kind.name))
