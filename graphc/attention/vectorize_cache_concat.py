"""Append to key/value caches by copying whole rows, with heads in parallel.

TVM's concat decides for each element which input it comes from, in plain loops.
"""

from typing import Any

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import OPAQUE, OPERATOR, parse_tvmscript, sizes_at


class VectorizeCacheConcat(Pass[list[Any]]):
    """Appends to caches of variable `length` by copying rows; checks shapes at `sample`."""

    name, match = "vectorize_cache_concat", ("relax.concat",)
    any_size = True

    def __init__(self, length: Any, sample: int) -> None:
        super().__init__()
        self._length, self._sample = length, sample

    def check(self, call: Any, g: Graph) -> list[Any]:
        parts = list(g.tuple_fields(call.args[0]))
        if len(parts) != 2 or call.ty.ndim != 4 or int(call.attrs.axis) not in (2, -2):
            raise Leave("the concat is not of two 4-D tensors along the third axis")
        cache, rows = (self._sizes(part, 0) for part in parts)
        next_cache = [*cache[:2], cache[2] + 1, cache[3]]
        if [self._sizes(part, 1) for part in parts] != [next_cache, rows]:
            raise Leave("only the first part may grow, by one row at a time")
        return parts

    def rewrite(self, call: Any, facts: list[Any], g: Graph) -> Any:
        batch, heads, rows, numbers = self._sizes(facts[1], 0)
        few, all_, longer = (f"0:{batch}, 0:{heads}, 0:{n}, 0:{numbers}" for n in (rows, "n", f"n + {rows}"))
        head = f"vj // {heads}, vj % {heads}"
        function = parse_tvmscript(f"""
n = TypeVar("n")
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    z: T.Buffer(({batch}, {heads}, {rows}, {numbers}), "float32"),
    y: T.Buffer(({batch}, {heads}, n + {rows}, {numbers}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}, "tirx.is_scheduled": True}})
    for job in T.parallel({batch * heads}):
        with T.sblock("appended"):
            vj = T.axis.spatial({batch * heads}, job)
            T.reads(x[{all_}], z[{few}])
            T.writes(y[{longer}])
            T.sblock_attr({{"{OPERATOR}": "appended"}})
            for t in range(n):
                for i in T.vectorized({numbers}): y[{head}, t, i] = x[{head}, t, i]
            for t in range({rows}):
                for i in T.vectorized({numbers}): y[{head}, n + t, i] = z[{head}, t, i]
""")
        return g.call_function("appended", function, facts, call.ty)

    def _sizes(self, part: Any, growth: int) -> list[int]:
        return sizes_at(part.ty.shape, self._length, self._sample + growth)
