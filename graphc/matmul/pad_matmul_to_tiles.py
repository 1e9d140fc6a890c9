"""Pad products with constant factors to sizes that can be tiled."""

from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.matmul import matmul_function


class PadMatmulToTiles(Pass[matmul_function.Product]):
    """Pads rows and columns of products with weights, so that their sizes can be tiled."""

    name, match = "matmul.pad_to_tiles", ("relax.matmul",)

    def check(self, call: Any, g: Graph) -> matmul_function.Product:
        data, weights = call.args
        if not g.is_constant(weights):
            raise Leave("its second factor is computed")
        if data.ty.ndim < 2:
            raise Leave("its first factor is a vector")
        *stack, _, outputs = sizes_of(weights)
        if stack and tuple(stack) != sizes_of(data)[:-2]:
            raise Leave("its factors are stacks of other sizes")
        product = _product(sizes_of(data), outputs, is_stack=bool(stack))
        tiled = matmul_function.tileable(product, g.lanes)
        if tiled == product:
            raise Leave("its sizes can be tiled")
        if stack and tiled.whole["j"] == outputs:
            raise Leave("it is a stack whose columns fill vectors")
        return tiled

    def rewrite(self, call: Any, facts: matmul_function.Product, g: Graph) -> Any:
        weights = g.array(call.args[1])
        columns = facts.whole["j"] - facts.sizes["j"]
        filled = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, columns)])
        function = matmul_function.function(facts)
        return g.call_function("whole_matmul", function, [call.args[0], relax.const(filled)], call.ty)


def _product(data: tuple[int, ...], outputs: int, is_stack: bool) -> matmul_function.Product:
    *stack, rows, inputs = data
    above = {f"a{at}": size for at, size in enumerate(stack)}
    sizes = above | {"i": rows, "j": outputs, "k": inputs}
    weights = [*above, *"kj"] if is_stack else ["k", "j"]
    return matmul_function.Product(sizes, [*above, *"ik"], weights, [*above, *"ij"], sizes, w_is_whole=True)
