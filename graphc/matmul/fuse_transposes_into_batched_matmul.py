"""Batched products that read and write through permuted axes, as in attention.

A transpose that keeps the last axis in place costs nothing inside a product, because rows stay contiguous; as
an operator of its own it copies everything.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from tvm import relax

from graphc.core import graph_rewriting
from graphc.matmul import matmul_function

PRODUCT, TRANSPOSE = "relax.matmul", "relax.permute_dims"


def heads(lanes: int = 0) -> Any:
    """The pass that moves such transposes into products of two computed factors.

    With `lanes` such products get sizes that can be tiled for vectors of so many numbers.
    """

    def rewrite(builder: Any, graph: Any) -> Any:
        return _factors(builder, _results(builder, graph, lanes), lanes)

    return graph_rewriting.graph_pass("Heads", rewrite)


def _results(builder: Any, graph: Any, lanes: int) -> Any:
    """Fuse transposes of results: products that only a transpose reads."""
    values = relax.analysis.get_var2val(graph)
    uses = Counter(var for value in values.values() for var in _variables(value))

    def rewrite(call: Any) -> Any:
        product, axes = graph_rewriting.call_of(values, call.args[0], PRODUCT), _axes(call)
        takes = product is not None and _fits(product) and axes and uses[call.args[0]] == 1
        if not takes:
            return call
        function = matmul_function.function(_tiled(_product(values, product, axes), lanes))
        return _call(builder, values, product, function, call.ty)

    return graph_rewriting.rewrite_known(graph, TRANSPOSE, rewrite)


def _factors(builder: Any, graph: Any, lanes: int) -> Any:
    """Fuse transposes of factors: products that read a transpose, or have sizes that cannot be tiled."""
    values = relax.analysis.get_var2val(graph)

    def rewrite(call: Any) -> Any:
        if not _fits(call):
            return call
        plain = _product(values, call, range(call.ty.ndim))
        tiled = _tiled(plain, lanes)
        if tiled == plain and all(_source(values, factor)[0] is factor for factor in call.args):
            return call
        return _call(builder, values, call, matmul_function.function(tiled), call.ty)

    return graph_rewriting.rewrite_known(graph, PRODUCT, rewrite)


def _tiled(product: Any, lanes: int) -> Any:
    return matmul_function.tileable(product, lanes) if lanes else product


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
    transpose = graph_rewriting.call_of(values, factor, TRANSPOSE)
    if transpose is not None and (axes := _axes(transpose)):
        return transpose.args[0], axes
    return factor, list(range(factor.ty.ndim))


def _fits(product: Any) -> bool:
    """True if both factors are computed stacks of equally many matrices."""
    left, right = product.args
    if (
        not graph_rewriting.known(product)
        or not isinstance(left, relax.Var)
        or not isinstance(right, relax.Var)
    ):
        return False
    alike = left.ty.dtype == right.ty.dtype == product.ty.dtype == "float32"
    return bool(
        alike
        and 3 <= left.ty.ndim == right.ty.ndim
        and graph_rewriting.sizes_of(left)[:-2] == graph_rewriting.sizes_of(right)[:-2]
    )


def _product(values: Mapping[Any, Any], product: Any, axes: Sequence[int]) -> Any:
    """The axes and sizes of a product of its factors' sources, with a permuted result."""
    *stack, rows, inputs = graph_rewriting.sizes_of(product.args[0])
    above = [f"a{axis}" for axis in range(len(stack))]
    sizes = dict(
        zip([*above, *"ijk"], [*stack, rows, graph_rewriting.sizes_of(product)[-1], inputs], strict=True)
    )
    left, right = (_source(values, factor)[1] for factor in product.args)
    x, w = _before([*above, *"ik"], left), _before([*above, *"kj"], right)
    return matmul_function.Product(sizes, x, w, [[*above, *"ij"][axis] for axis in axes], sizes)


def _before(axes: list[str], permutation: list[int]) -> list[str]:
    """The axes in their order before the permutation."""
    return [axis for _, axis in sorted(zip(permutation, axes, strict=True))]


def _call(builder: Any, values: Mapping[Any, Any], product: Any, function: Any, result: Any) -> Any:
    factors = [_source(values, factor)[0] for factor in product.args]
    return relax.call_tir(builder.add_func(function, "heads_matmul"), factors, result)
