"""Cumulative sums as blocks: what lies beside the axis fills vectors, or some rows run side by side.

TVM's own form is one loop without blocks, which nothing can schedule.
"""

from functools import partial
from math import prod
from typing import Any

from tvm import relax

from graphc.core import graph_rewriting

VECTORS, ROWS = 4, 8  # that are summed side by side
_TYPES = ("float32", "int32", "int64")


def cumulative(lanes: int = graph_rewriting.LANES) -> Any:
    """The pass that rewrites them along a named axis."""
    return graph_rewriting.call_pass("Cumulative", {"relax.cumsum": partial(_rewrite, lanes=lanes)})


def _rewrite(builder: Any, call: Any, lanes: int) -> Any:
    (data,), attrs, sizes = call.args, call.attrs, graph_rewriting.sizes_of(call)
    if attrs.axis is None or call.ty.dtype not in _TYPES or call.ty.dtype != data.ty.dtype:
        return call
    axis = int(attrs.axis) % len(sizes)
    outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
    shape = outer, sizes[axis], inner
    wide = graph_rewriting.largest_factor(inner, VECTORS * lanes)
    rows = graph_rewriting.largest_factor(outer, ROWS) if wide == 1 else 1
    function = _function(shape, rows, wide, str(call.ty.dtype), bool(attrs.exclusive))
    named = builder.add_func(function, "cumulative_sum")
    viewed = relax.op.reshape(data, shape)
    return relax.op.reshape(relax.call_tir(named, [viewed], relax.TensorType(shape, call.ty.dtype)), sizes)


def _function(shape: tuple[int, ...], rows: int, wide: int, dtype: str, exclusive: bool) -> Any:
    outer, steps, inner = shape
    place = f"vo * {rows} + r, s, vc * {wide} + i"
    region = f"vo * {rows}:vo * {rows} + {rows}, 0:{steps}, vc * {wide}:vc * {wide} + {wide}"
    added, given = f"a[r * {wide} + i] = a[r * {wide} + i] + x[{place}]", f"y[{place}] = a[r * {wide} + i]"
    first, second = (given, added) if exclusive else (added, given)
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({shape}, "{dtype}"), y: T.Buffer({shape}, "{dtype}")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for o, c, once in T.grid({outer // rows}, {inner // wide}, 1):
        with T.sblock("sums"):
            vo, vc, v_once = T.axis.remap("SSS", [o, c, once])
            T.reads(x[{region}])
            T.writes(y[{region}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "cumulative_sum"}})
            a = T.sblock_alloc_buffer(({rows * wide},), "{dtype}")
            for i in T.vectorized({rows * wide}):
                a[i] = T.{dtype}(0)
            for s in range({steps}):
                for r in T.unroll({rows}):
                    for i in T.vectorized({wide}):
                        {first}
                        {second}
""")
