"""Caches with what comes behind them: copied row by row, heads side by side.

TVM asks of every number which part it belongs to, in plain loops.
"""

from typing import Any

from tvm import relax

from graphc.core import graph_rewriting

CONCAT = "relax.concat"


def appended(length: Any, sample: int) -> Any:
    """The pass that copies them so where the first part is as long as `length`; `sample` is one length."""

    def rewrite_all(builder: Any, graph: Any) -> Any:
        pattern = relax.dpl.is_op(CONCAT)(varg_default_wildcard=True)
        values = relax.analysis.get_var2val(graph)

        def rewrite(call: Any, _: Any) -> Any:
            parts = call.args[0]
            parts = values[parts] if isinstance(parts, relax.Var) else parts
            return _rewritten(builder, call, list(parts.fields), (length, sample))

        return relax.dpl.rewrite_call(pattern, rewrite, graph)

    return graph_rewriting.graph_pass("Appended", rewrite_all)


def _rewritten(builder: Any, call: Any, parts: list[Any], at: tuple[Any, int]) -> Any:
    axis = int(call.attrs.axis)
    if len(parts) != 2 or call.ty.ndim != 4 or axis not in (2, -2) or call.ty.dtype != "float32":
        return call
    sizes = [graph_rewriting.sizes_at(part.ty.shape, *at) for part in parts]
    later = [graph_rewriting.sizes_at(part.ty.shape, at[0], at[1] + 1) for part in parts]
    one_more = [*sizes[0][:2], sizes[0][2] + 1, sizes[0][3]]
    if later != [one_more, sizes[1]]:
        return call
    named = builder.add_func(_function(sizes[1]), "appended")
    return relax.call_tir(named, parts, call.ty)


def _function(sizes: list[int]) -> Any:
    batch, heads, rows, numbers = sizes
    few, all_, whole = (f"0:{batch}, 0:{heads}, 0:{n}, 0:{numbers}" for n in (rows, "n", f"n + {rows}"))
    at = f"vj // {heads}, vj % {heads}"
    return graph_rewriting.parsed(f"""
n = TypeVar("n")
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({batch}, {heads}, n, {numbers}), "float32"),
    z: T.Buffer(({batch}, {heads}, {rows}, {numbers}), "float32"),
    y: T.Buffer(({batch}, {heads}, n + {rows}, {numbers}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}, "tirx.is_scheduled": True}})
    for job in T.parallel({batch * heads}):
        with T.sblock("appended"):
            vj = T.axis.spatial({batch * heads}, job)
            T.reads(x[{all_}], z[{few}])
            T.writes(y[{whole}])
            T.sblock_attr({{"{graph_rewriting.OPERATOR}": "appended"}})
            for t in range(n):
                for i in T.vectorized({numbers}): y[{at}, t, i] = x[{at}, t, i]
            for t in range({rows}):
                for i in T.vectorized({numbers}): y[{at}, n + t, i] = z[{at}, t, i]
""")
