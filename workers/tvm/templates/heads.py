"""Batched products that read and write through permuted axes, as in attention.

A transpose that keeps the last axis in place costs nothing inside a product, because rows stay contiguous; as
an operator of its own it copies everything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import tvm
from tvm import relax

rewriting = import_module(f"{__package__}.rewriting" if __package__ else "rewriting")
PRODUCT, TRANSPOSE = "relax.matmul", "relax.permute_dims"


def heads() -> Any:
    """The pass that moves such transposes into products of two computed factors."""
    return rewriting.graph_pass("Heads", lambda builder, graph: _factors(builder, _results(builder, graph)))


def _results(builder: Any, graph: Any) -> Any:
    """Fuse transposes of results: products that only a transpose reads."""
    values = relax.analysis.get_var2val(graph)
    uses = Counter(var for value in values.values() for var in _variables(value))

    def rewrite(call: Any) -> Any:
        product, axes = rewriting.call_of(values, call.args[0], PRODUCT), _axes(call)
        takes = product is not None and _fits(product) and axes and uses[call.args[0]] == 1
        return _call(builder, values, product, axes, call.ty) if takes else call

    return rewriting.rewrite_known(graph, TRANSPOSE, rewrite)


def _factors(builder: Any, graph: Any) -> Any:
    """Fuse transposes of factors: products that read a transpose."""
    values = relax.analysis.get_var2val(graph)

    def rewrite(call: Any) -> Any:
        takes = _fits(call) and any(_source(values, factor)[0] is not factor for factor in call.args)
        return _call(builder, values, call, range(call.ty.ndim), call.ty) if takes else call

    return rewriting.rewrite_known(graph, PRODUCT, rewrite)


def _variables(value: Any) -> list[Any]:
    if isinstance(value, relax.Var):
        return [value]
    parts = value.args if isinstance(value, relax.Call) else getattr(value, "fields", [])
    return [var for part in parts for var in _variables(part)]


def _axes(transpose: Any) -> list[int]:
    """The permutation of a transpose; empty if it moves the last axis."""
    last = transpose.ty.ndim - 1
    axes = list(map(int, transpose.attrs.axes or range(last, -1, -1)))
    return axes if axes[-1] == last else []


def _source(values: Mapping[Any, Any], factor: Any) -> tuple[Any, list[int]]:
    """A factor before its transpose, and the permutation; the factor itself if there is nothing to fuse."""
    transpose = rewriting.call_of(values, factor, TRANSPOSE)
    if transpose is not None and (axes := _axes(transpose)):
        return transpose.args[0], axes
    return factor, list(range(factor.ty.ndim))


def _fits(product: Any) -> bool:
    """True if both factors are computed stacks of equally many matrices."""
    left, right = product.args
    if not rewriting.known(product) or not isinstance(left, relax.Var) or not isinstance(right, relax.Var):
        return False
    alike = left.ty.dtype == right.ty.dtype == product.ty.dtype == "float32"
    return bool(
        alike
        and 3 <= left.ty.ndim == right.ty.ndim
        and rewriting.sizes_of(left)[:-2] == rewriting.sizes_of(right)[:-2]
    )


def _call(builder: Any, values: Mapping[Any, Any], product: Any, axes: Sequence[int], result: Any) -> Any:
    """The call of a product as a tensor function of its factors' sources, with a permuted result."""
    sources = [_source(values, factor) for factor in product.args]
    *stack, rows, inputs = rewriting.sizes_of(product.args[0])
    extents = [*stack, rows, rewriting.sizes_of(product)[-1], inputs]
    loops = [*(f"a{axis}" for axis in range(len(stack))), "i", "j", "k"]
    function = _function(loops, extents, [axes for _, axes in sources], axes)
    factors = [source for source, _ in sources]
    return relax.call_tir(builder.add_func(function, "heads_matmul"), factors, result)


def _function(loops: list[str], extents: list[int], factors: list[list[int]], result: Sequence[int]) -> Any:
    *stack, row, column, inner = zip(loops, extents, strict=True)
    values, kinds = (f"v{loop}" for loop in loops), "S" * (len(loops) - 1) + "R"
    x_name, x = _buffer("x", _before([*stack, row, inner], factors[0]))
    w_name, w = _buffer("w", _before([*stack, inner, column], factors[1]))
    y_name, y = _buffer("y", [[*stack, row, column][axis] for axis in result])
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main({x_name}, {w_name}, {y_name}) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    for {", ".join(loops)} in T.grid({rewriting.numbers(extents)}):
        with T.sblock("product"):
            {", ".join(values)} = T.axis.remap("{kinds}", [{", ".join(loops)}])
            with T.init():
                {y} = T.float32(0)
            {y} = {y} + {x} * {w}
""")


def _before(axes: list[tuple[str, int]], permutation: list[int]) -> list[tuple[str, int]]:
    """The axes in their order before the permutation."""
    return [axis for _, axis in sorted(zip(permutation, axes, strict=True))]


def _buffer(name: str, axes: list[tuple[str, int]]) -> tuple[str, str]:
    """A buffer parameter, and its indices as read or written."""
    shape = rewriting.numbers(extent for _, extent in axes)
    return f'{name}: T.Buffer(({shape}), "float32")', f"{name}[{', '.join(f'v{loop}' for loop, _ in axes)}]"
