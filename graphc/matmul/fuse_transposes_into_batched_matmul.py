"""Fuse batched matrix products with the transposes around them, as in attention.

A transpose that keeps the last axis costs nothing inside a product, because rows stay
contiguous; as a separate operator it copies everything. Tensor cores of GPUs read factors
in any order, so there every transpose of a factor is fused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import permutation, sizes_of
from mallorn.graphc.matmul.pad_matmul_to_tiles import Product, matmul_function, pad_to_tiles

PRODUCT, TRANSPOSE = "relax.matmul", "relax.permute_dims"
_FACTORS = tuple((dtype, dtype) for dtype in ("float32", "float16", "bfloat16"))


@dataclass(frozen=True)
class Factor:
    """A factor of a product before it was transposed, and the permutation of its axes."""

    value: Any
    axes: list[int]


@dataclass(frozen=True)
class PermutedProduct:
    """A product that reads its factors without transposes, and these factors."""

    product: Product
    arguments: list[Any]


class FuseTransposesIntoBatchedMatmul(Pass[PermutedProduct]):
    """Fuses transposes with matrix products of two computed factors.

    If `lanes` (numbers per vector) is not 0, it also pads products to sizes that can be
    tiled. With `any_order`, as for GPUs, factors may be transposed in any way.
    """

    name, match = "fuse_transposes_into_batched_matmul", (TRANSPOSE, PRODUCT)

    def __init__(self, lanes: int = 0, any_order: bool = False) -> None:
        super().__init__(lanes)
        self.any_order = any_order

    def check(self, call: Any, g: Graph) -> PermutedProduct:
        if operator_name(call) == TRANSPOSE:
            product, axes = g.producer(call.args[0], PRODUCT), _axes(call)
            if product is None:
                raise Leave("the transpose is not of a matrix product")
            if not axes:
                raise Leave("the transpose moves the last axis of the product")
            if g.reader_count(call.args[0]) != 1:
                raise Leave("other operators read the product, too")
            _reject_unfit(product)
            return _make_permuted_product(
                product, [factor_of(value, g, self.any_order) for value in product.args], axes, g.lanes
            )
        _reject_unfit(call)
        reader = g.only_reader(g.variable, TRANSPOSE)
        if reader is not None and _axes(reader):
            raise Leave("the transpose that reads this product is rewritten together with it")
        factors = [factor_of(value, g, self.any_order) for value in call.args]
        permuted = _make_permuted_product(call, factors, range(call.ty.ndim), g.lanes)
        is_padded = permuted.product.padded != permuted.product.sizes
        pairs = zip(factors, call.args, strict=True)
        if not is_padded and all(factor.value.same_as(value) for factor, value in pairs):
            raise Leave("the factors are not transposed, and the sizes can be tiled")
        return permuted

    def rewrite(self, call: Any, facts: PermutedProduct, g: Graph) -> Any:
        return g.call_function("heads_matmul", matmul_function(facts.product), facts.arguments, call.ty)


def _reject_unfit(product: Any) -> None:
    """Raise Leave unless both factors are computed, of a fit type, and stacks of equal length."""
    left, right = product.args
    if not isinstance(left, relax.Var) or not isinstance(right, relax.Var):
        raise Leave("a factor of the product is constant")
    types = str(left.ty.dtype), str(right.ty.dtype)
    if product.ty.dtype != "float32" or types not in _FACTORS:
        raise Leave("the product or one of its factors is not float32")
    if not 3 <= left.ty.ndim == right.ty.ndim or sizes_of(left)[:-2] != sizes_of(right)[:-2]:
        raise Leave("the factors are not stacks of equally many matrices")


def _axes(transpose: Any) -> list[int]:
    """Return the permutation of a transpose; empty if it moves the last axis."""
    axes = list(permutation(transpose))
    return axes if axes[-1] == len(axes) - 1 else []


def factor_of(value: Any, g: Graph, moves_last: bool) -> Factor:
    """Return a factor without its transpose, or as it is if no transpose can be fused.

    A transpose that moves the last axis is fused only if `moves_last`.
    """
    transpose = g.producer(value, TRANSPOSE)
    if transpose is not None and (axes := list(permutation(transpose)) if moves_last else _axes(transpose)):
        return Factor(transpose.args[0], axes)
    return Factor(value, list(range(value.ty.ndim)))


def _make_permuted_product(
    product: Any, factors: Sequence[Factor], result_axes: Sequence[int], lanes: int
) -> PermutedProduct:
    """Return the product that reads untransposed factors and writes axes in order `axes`."""
    *stack, rows, inputs = sizes_of(product.args[0])
    stack_axes = [f"a{axis}" for axis in range(len(stack))]
    sizes = dict(zip([*stack_axes, *"ijk"], [*stack, rows, sizes_of(product)[-1], inputs], strict=True))
    left, right = factors
    if left.value.same_as(right.value):  # of two regions of a tensor, TVM's FuseTIR keeps one
        raise Leave("both factors are the same tensor")
    # Axes of the factors in their order before the transposes.
    x, w = (
        [axis for _, axis in sorted(zip(factor.axes, [*stack_axes, *names], strict=True))]
        for factor, names in ((left, "ik"), (right, "kj"))
    )
    y = [[*stack_axes, *"ij"][axis] for axis in result_axes]
    unpadded = Product(sizes=sizes, x=x, w=w, y=y, padded=sizes, factors=str(left.value.ty.dtype))
    return PermutedProduct(pad_to_tiles(unpadded, lanes) if lanes else unpadded, [left.value, right.value])
