"""Clip as operators: TVM's importer makes tensor functions of it, which block layout changes."""

from collections.abc import Callable
from typing import Any

from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.reporting_pass import Leave

Bound = Callable[[Any, Any], Any]
BOUNDS: dict[str, Bound] = {"maximum": relax.op.maximum, "minimum": relax.op.minimum}


class ClipToMaxMin(Pass[Bound]):
    """Writes the importer's functions of one bound, which are what it makes of Clip, as operators."""

    name, match = "layout.clip_to_max_min", ("relax.call_tir",)
    dtype, any_size = "", True

    def check(self, call: Any, g: Graph) -> Bound:
        bound = BOUNDS.get(call.args[0].name_hint.rstrip("0123456789"))
        if bound is None:
            raise Leave("it is neither a maximum nor a minimum")
        values = call.args[1].fields
        if len(values) != 2 or values[1].ty.ndim != 0:
            raise Leave("its bound is no single number")
        return bound

    def rewrite(self, call: Any, facts: Bound, g: Graph) -> Any:
        return facts(*call.args[1].fields)
