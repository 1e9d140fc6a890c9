"""Stop schedules from changing the layout of weights that are already packed for reading."""

from typing import Any

from tvm.s_tir import SBlock

from mallorn.graphc.core.graph_pass import Leave, TensorFunctionPass
from mallorn.graphc.core.graph_rewriting import OPERATOR, RULE, collect_nodes
from mallorn.graphc.quant import block_quantized_matmul_function, tile_instructions

# Operator of blocks that read a vector in several parts; TVM would re-lay it for one part.
BY_PART = "concatenate"
FREE = "layout_free_buffers"  # function attribute: arguments that schedules may re-lay


class KeepPackedWeights(TensorFunctionPass[None]):
    """Keeps schedules from changing the layout of packed weights and concatenated parts."""

    name, rules = "keep_packed_weights", (block_quantized_matmul_function.RULE, tile_instructions.RULE)

    def check(self, function: Any) -> None:
        annotations = [block.annotations for block in collect_nodes(function, SBlock)]
        if not any(a.get(RULE) in self.rules or a.get(OPERATOR) == BY_PART for a in annotations):
            raise Leave("the function has no weights in blocks or tiles, and joins no parts")
        if FREE not in (function.attrs or {}):
            raise Leave("the function has no weights whose layout may change")

    def rewrite(self, function: Any, facts: None) -> Any:
        return function.without_attr(FREE)
