"""Compute cumulative sums in blocks, vectorised over columns or several rows at a time.

TVM's version is one loop without blocks, which MetaSchedule cannot schedule.
"""

from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import OPAQUE, OPERATOR, largest_factor, parse_tvmscript, sizes_of

VECTORS, ROWS = 4, 8  # vectors, or rows, that are summed at the same time
_TYPES = ("float32", "int32", "int64")


@dataclass(frozen=True)
class Blocks:
    """The data's shape as [before, axis, after], and the rows or columns of one block."""

    shape: tuple[int, int, int]
    rows: int
    columns: int


class VectorizeCumsum(Pass[Blocks]):
    """Computes cumulative sums along an axis in parallel blocks, with vectors."""

    name, match = "vectorize_cumsum", ("relax.cumsum",)
    dtype = ""

    def check(self, call: Any, g: Graph) -> Blocks:
        if call.attrs.axis is None:
            raise Leave("the cumulative sum is over all axes")
        if call.ty.dtype not in _TYPES or call.ty.dtype != call.args[0].ty.dtype:
            raise Leave(f"the pass does not vectorise sums of {call.args[0].ty.dtype} to {call.ty.dtype}")
        sizes = sizes_of(call)
        axis = int(call.attrs.axis) % len(sizes)
        outer, inner = prod(sizes[:axis]), prod(sizes[axis + 1 :])
        columns = largest_factor(inner, VECTORS * g.lanes)
        rows = largest_factor(outer, ROWS) if columns == 1 else 1
        return Blocks((outer, sizes[axis], inner), rows, columns)

    def rewrite(self, call: Any, facts: Blocks, g: Graph) -> Any:
        dtype, rows, wide = str(call.ty.dtype), facts.rows, facts.columns
        outer, steps, inner = facts.shape
        place = f"vo * {rows} + r, s, vc * {wide} + i"
        region = f"vo * {rows}:vo * {rows} + {rows}, 0:{steps}, vc * {wide}:vc * {wide} + {wide}"
        addition = f"a[r * {wide} + i] = a[r * {wide} + i] + x[{place}]"
        store = f"y[{place}] = a[r * {wide} + i]"
        first, second = (store, addition) if call.attrs.exclusive else (addition, store)
        function = parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({facts.shape}, "{dtype}"), y: T.Buffer({facts.shape}, "{dtype}")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for o, c, once in T.grid({outer // rows}, {inner // wide}, 1):
        with T.sblock("sums"):
            vo, vc, v_once = T.axis.remap("SSS", [o, c, once])
            T.reads(x[{region}])
            T.writes(y[{region}])
            T.sblock_attr({{"{OPERATOR}": "cumulative_sum"}})
            a = T.sblock_alloc_buffer(({rows * wide},), "{dtype}")
            for i in T.vectorized({rows * wide}):
                a[i] = T.{dtype}(0)
            for s in range({steps}):
                for r in T.unroll({rows}):
                    for i in T.vectorized({wide}):
                        {first}
                        {second}
""")
        viewed = relax.op.reshape(call.args[0], facts.shape)
        result = relax.TensorType(facts.shape, dtype)
        sums = g.call_function("cumulative_sum", function, [viewed], result)
        return relax.op.reshape(sums, sizes_of(call))
