"""Weights that lie in the order in which their instruction reads them."""

from typing import Any

from tvm.s_tir import SBlock

from graphc.core import graph_rewriting
from graphc.core.reporting_pass import Leave
from graphc.core.tensor_function_pass import TensorFunctionPass
from graphc.quant import block_quantized_matmul_function

FREE = "layout_free_buffers"  # what a function says of arguments that schedules may lay out anew


class KeepPackedWeights(TensorFunctionPass[None]):
    """Keeps block-quantised weights as they are packed: no schedule lays them out anew."""

    name, rules = "tasks.keep_packed_weights", (block_quantized_matmul_function.RULE,)

    def check(self, function: Any) -> None:
        blocks = graph_rewriting.collect(function, SBlock)
        if not any(block.annotations.get(graph_rewriting.RULE) in self.rules for block in blocks):
            raise Leave("it multiplies no block-quantised weights")
        if FREE not in (function.attrs or {}):
            raise Leave("it has no weights that may be laid out anew")

    def rewrite(self, function: Any, facts: None) -> Any:
        return function.without_attr(FREE)
