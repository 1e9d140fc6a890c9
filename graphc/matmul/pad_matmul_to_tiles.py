"""Products with constant factors get sizes that can be tiled, where their own have no fitting factors."""

from typing import Any

import numpy as np
from tvm import relax

from graphc.core.graph import Graph
from graphc.core.graph_pass import Pass
from graphc.core.graph_rewriting import sizes_of
from graphc.core.reporting_pass import Leave
from graphc.matmul import matmul_function


class PadMatmulToTiles(Pass[matmul_function.Product]):
    """Computes a few more rows and columns of products with weights, so that their sizes can be tiled."""

    name, match = "matmul.pad_to_tiles", ("relax.matmul",)

    def check(self, call: Any, g: Graph) -> matmul_function.Product:
        data, weights = call.args
        if not g.is_constant(weights) or weights.ty.ndim != 2:
            raise Leave("its second factor is computed, or a stack")
        if data.ty.ndim < 2:
            raise Leave("its first factor is a vector")
        plain = _product(sizes_of(data), sizes_of(weights)[1])
        tiled = matmul_function.tileable(plain, g.lanes)
        if tiled == plain:
            raise Leave("its sizes can be tiled")
        return tiled

    def rewrite(self, call: Any, facts: matmul_function.Product, g: Graph) -> Any:
        weights = g.array(call.args[1])
        columns = facts.whole["j"] - facts.sizes["j"]
        filled = np.pad(weights, [(0, 0), (0, columns)])
        function = matmul_function.function(facts)
        return g.call_function("whole_matmul", function, [call.args[0], relax.const(filled)], call.ty)


def _product(data: tuple[int, ...], outputs: int) -> matmul_function.Product:
    *stack, rows, inputs = data
    above = {f"a{at}": size for at, size in enumerate(stack)}
    sizes = above | {"i": rows, "j": outputs, "k": inputs}
    return matmul_function.Product(
        sizes, [*above, *"ik"], ["k", "j"], [*above, *"ij"], sizes, w_is_whole=True
    )
