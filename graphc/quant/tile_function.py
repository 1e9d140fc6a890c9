"""Build products with constant weights by AMX tiles, as tensor functions.

The weights have the same layout as for vector instructions. A process that may not use tiles
computes the same in loops.
"""

from math import prod
from typing import Any

import numpy as np
from tvm import relax

from graphc.core import graph_rewriting
from graphc.core.graph import Graph
from graphc.quant import dot_product_function
from graphc.quant.tile_instructions import ALLOWED, COLUMNS, FACTORS, RULE
from graphc.quant.tiled_sums import WIDTH, TiledSums


def packed(tiled: TiledSums, weights: Any) -> Any:
    """Pack [..., inputs, outputs] for tiles, padded to an even number of tile columns."""
    missing = tiled.summed[-1] - weights.shape[-1]
    padded = np.pad(weights, [*[(0, 0)] * (weights.ndim - 1), (0, missing)])
    return dot_product_function.packed(tiled.by.numbers, padded)


def call(tiled: TiledSums, weights: Any, name: str, data: Any, g: Graph) -> Any:
    """Return the call of the product's function with packed weights."""
    laid = relax.const(packed(tiled, weights))
    result = relax.TensorType(tiled.sums.result, tiled.by.numbers.sums)
    return g.call_function(name, function(tiled, name.partition("_")[2]), [data, laid], result)


def function(tiled: TiledSums, name: str) -> Any:
    """Build the tensor function; TVM can fuse element-wise operators after it."""
    sums, by = tiled.sums, tiled.by.numbers
    axes = [f"i{axis}" for axis in range(len(sums.result) - 1)] + ["j"]
    values = [f"v{axis}" for axis in axes]
    is_full = tiled.summed == sums.result
    data, result, every = map(graph_rewriting.numbers, (sums.data, sums.result, tiled.summed))
    steps = (tiled.summed[-1] // by.lanes, *sums.kernel, sums.inputs // by.each, by.lanes, by.each)
    weights = graph_rewriting.numbers(steps)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({data}), "{by.data}"),
    w: T.Buffer(({weights}), "{by.weights}"),
    y: T.Buffer(({result}), "{by.sums}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    {"" if is_full else f'z = T.sblock_alloc_buffer(({every}), "{by.sums}")'}
    for {", ".join(axes)} in T.grid({graph_rewriting.numbers(tiled.loops)}):
        with T.sblock("tiles"):
            {", ".join(values)} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            T.reads(x[{_all(sums.data)}], w[{_part("vj", FACTORS)}, {_all(steps[1:])}])
            T.writes({_written("y" if is_full else "z", tiled)})
            T.sblock_attr({{
                "{graph_rewriting.RULE}": "{RULE}",
                "{graph_rewriting.OPERATOR}": "{name}",
                "{graph_rewriting.TERMS}": {tiled.places * tiled.run},
                "{graph_rewriting.WORK}": {2 * prod(sums.result) * tiled.places * tiled.run},
            }})
{_body(tiled, "y" if is_full else "z")}
{"" if is_full else dot_product_function.taken(sums.result)}""")


def _body(tiled: TiledSums, result: str) -> str:
    by, shape = tiled.by.numbers, _block(tiled)
    strides = [f"s{axis}" for axis in range(len(shape) - 1)]
    declared = "".join(f"            {stride} = T.int64()\n" for stride in strides)
    return f"""
{declared}
            t = T.match_buffer({_written(result, tiled)}, ({graph_rewriting.numbers(shape)}), "{by.sums}",
                strides=[{", ".join(strides)}, 1], offset_factor=1)
            T.attr(0, "pragma_import_llvm", {tiled.by.text!r})
            if T.call_extern("int32", "{ALLOWED}") != 0:
                T.evaluate(T.call_extern("void", "{tiled.by.function}", {_arguments(tiled)}))
            else:
{_loops(tiled)}
"""


def _block(tiled: TiledSums) -> tuple[int, ...]:
    """Return the shape of the block of results that is computed at once."""
    return (FACTORS, tiled.rows, WIDTH) if tiled.paired else (tiled.block, WIDTH)


def _arguments(tiled: TiledSums) -> str:
    """Return the arguments of the LLVM function; sizes are in bytes."""
    sums = tiled.sums
    nothing = {f"v{axis}": "0" for axis in (*sums.window, "ko", "ki")}
    row, place = (stride * tiled.size for stride in sums.strides or ())
    place_of = ", ".join(["vi0"] if sums.stacked else ["0"] * len(sums.kernel))
    weights = (f"w[{_joined(f'vj * {FACTORS} + {tile}', place_of, '0, 0, 0')}]" for tile in (0, 1))
    data = (f"x[{tiled.data(**nothing, **tiled.row(tile, '0'))}]" for tile in "01")
    results = ("t[0, 0, 0]", "t[1, 0, 0]") if tiled.paired else ("t[0, 0]", f"t[{tiled.above}, 0]")
    numbers = (row, place, tiled.places, tiled.run // tiled.step, tiled.step * tiled.size)
    sizes = [f"T.int64({number})" for number in numbers]
    x, w, t = (", ".join(f"T.address_of({each})" for each in places) for places in (data, weights, results))
    return _joined(x, *sizes, w, t, f"s{len(_block(tiled)) - 2} * T.int64(4)", *_rows(tiled))


def _rows(tiled: TiledSums) -> list[str]:
    """Return the rows of each tile; the last tiles have fewer, at least one, even if unused."""
    at = len(tiled.sums.result) - 2
    left = f"{tiled.rows} - vi{at} * {tiled.block}"
    below = f"T.max(1, T.min({tiled.block - tiled.above}, {left} - {tiled.above}))"
    if tiled.paired:
        return [f"T.int32({tiled.rows})"] * 2
    return [f'T.Cast("int32", {rows})' for rows in (f"T.min({tiled.above}, {left})", below)]


def _loops(tiled: TiledSums) -> str:
    """Return the same computation in loops, for a process without tiles."""
    sums, by = tiled.sums, tiled.by.numbers
    rows = ["p", "r"] if tiled.paired else ["r"]
    place = ", ".join([*rows, "c"])
    window = [*sums.window, "ko", "ki"]
    indices = {f"v{axis}": axis for axis in window} | tiled.row(*(["p", "r"] if tiled.paired else ["0", "r"]))
    at = ", ".join(["vi0"] if sums.stacked else sums.window)
    w = _joined(f"vj * {FACTORS} + c // {COLUMNS}", at, f"ko, c % {COLUMNS}, ki")
    extents = (*(() if sums.stacked else sums.kernel), sums.inputs // by.each, by.each)
    return f"""
                for {place} in T.grid({graph_rewriting.numbers(_block(tiled))}):
                    t[{place}] = T.{by.sums}(0)
                    for {", ".join(window)} in T.grid({graph_rewriting.numbers(extents)}):
                        t[{place}] = t[{place}] + (
                            T.Cast("{by.sums}", x[{tiled.data(**indices)}]) * T.Cast("{by.sums}", w[{w}])
                        )"""


def _written(result: str, tiled: TiledSums) -> str:
    at = len(tiled.sums.result) - 2
    axes = [f"vi{axis}" for axis in range(at)]
    if tiled.paired:
        place = _joined(*axes[:-1], _part(axes[-1], FACTORS), f"0 : {tiled.rows}")
    else:
        place = _joined(*axes, _part(f"vi{at}", tiled.block))
    return f"{result}[{place}, {_part('vj', WIDTH)}]"


def _part(axis: str, size: int) -> str:
    return f"{axis} * {size} : {axis} * {size} + {size}"


def _all(sizes: tuple[int, ...]) -> str:
    return ", ".join(f"0 : {size}" for size in sizes)


def _joined(*parts: str) -> str:
    return ", ".join(filter(None, parts))
