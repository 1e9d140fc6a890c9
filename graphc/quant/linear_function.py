"""Tensor functions that sum values up.

Scales and zero points behind a product are one factor and one summand for each number that is read. They are
arguments: a convolution and what follows it is the same task in layers whose scales differ.
"""

from typing import Any

import numpy as np
from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph import Graph
from graphc.quant.linear_sums import Linear


def call_linear(name: str, sum_: Linear, whole: str, result: Any, g: Graph) -> Any:
    """The call of a function that sums values up; what `whole` makes of each sum is the result."""
    values, sizes = [value for value, _ in sum_.terms], tuple(map(int, result.shape))
    function = _function(name, values, whole, sizes, str(result.dtype))
    # The values' factors, then what is added, each a vector along the last axis: arguments, not numbers.
    rows = *(by for _, by in sum_.terms), sum_.constant
    factors = [relax.const(np.broadcast_to(row, sizes[-1]).astype("float32")) for row in rows]
    return g.call_function(name, function, [*values, *factors], result)


def _function(name: str, values: list[Any], whole: str, sizes: tuple[int, ...], dtype: str) -> Any:
    """TVM finds by itself that this is element-wise, and fuses it behind products."""
    axes, numbers = [f"i{axis}" for axis in range(len(sizes))], graph_rewriting.numbers(sizes)
    place, last = ", ".join(f"v{axis}" for axis in axes), f"v{axes[-1]}"
    text = f"k{len(values)}[{last}]"
    for at in reversed(range(len(values))):
        text = f'T.Cast("float32", x{at}[{place}]) * k{at}[{last}] + {text}'
    buffers = [
        *(f'x{at}: T.Buffer(({numbers},), "{each.ty.dtype}")' for at, each in enumerate(values)),
        *(f'k{at}: T.Buffer((T.int64({sizes[-1]}),), "float32")' for at in range(len(values) + 1)),
        f'y: T.Buffer(({numbers},), "{dtype}")',
    ]
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main({", ".join(buffers)}) -> None:
    T.func_attr({{"tirx.noalias": True}})
    for {", ".join(axes)} in T.grid({numbers}):
        with T.sblock("{name}"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = {whole.format(text)}
""")
