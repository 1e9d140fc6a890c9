"""Products with constant factors get sizes that can be tiled, where their own have no fitting factors."""

from functools import partial
from typing import Any

import numpy as np
import tvm
from tvm import relax

from graphc.core import graph_rewriting
from graphc.matmul import matmul_function


def whole(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass that computes a few rows or columns more."""
    return graph_rewriting.call_pass("Whole", {"relax.matmul": partial(_rewrite, lanes=lanes)})


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    data, weights = call.args
    constant = isinstance(weights, tvm.ir.GenericConst) and weights.ty.ndim == 2
    if not constant or data.ty.ndim < 2 or call.ty.dtype != "float32":
        return call
    *stack, rows, inputs = graph_rewriting.sizes_of(data)
    outputs = graph_rewriting.sizes_of(weights)[1]
    above = {f"a{at}": size for at, size in enumerate(stack)}
    sizes = above | {"i": rows, "j": outputs, "k": inputs}
    plain = matmul_function.Product(
        sizes, [*above, *"ik"], ["k", "j"], [*above, *"ij"], sizes, w_is_whole=True
    )
    tiled = matmul_function.tileable(plain, lanes)
    if tiled.whole == sizes:
        return call
    filled = np.pad(weights.value.numpy(), [(0, 0), (0, tiled.whole["j"] - outputs)])
    function = builder.add_func(matmul_function.function(tiled), "whole_matmul")
    return relax.call_tir(function, [data, relax.const(filled)], call.ty)
