"""Multiply in float16 or bfloat16 with float32 sums, as the tensor cores of GPUs do.

Only factors are rounded. Biases, activations, residual sums, norms and softmax compute in
float32. A value that a product reads is stored in 16 bits, for its other readers too.
"""

from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass, operator_name
from mallorn.graphc.core.graph_rewriting import ELEMENTWISE, copy_convolution

WIDE = "float32"
CAST, MATMUL = "relax.astype", "relax.matmul"
PRODUCTS = (MATMUL, "relax.nn.conv1d", "relax.nn.conv2d")


class HalfProducts(Pass[list[bool]]):
    """Rounds the factors of products and convolutions to 16 bits; sums stay float32.

    Products of `dtype` factors, as of models that are stored so, get float32 sums as well.
    """

    name, match = "half_products", (*PRODUCTS, *ELEMENTWISE, "relax.erf")
    dtype = ""

    def __init__(self, dtype: str = "float16") -> None:
        super().__init__()
        self.half = dtype

    def check(self, call: Any, g: Graph) -> list[bool]:
        """Return for each argument whether it is rounded."""
        if operator_name(call) in PRODUCTS:
            if obstacle := _obstacle(call, self.half, g):
                raise Leave(obstacle)
            return [value.ty.dtype == WIDE for value in call.args]
        # Round what a kernel computes and a product reads: it is stored once, in 16 bits.
        readers = [
            [] if g.producer(value) is None or value.ty.dtype != WIDE else g.readers(value)
            for value in call.args
        ]
        is_stored = [
            any(
                operator_name(reader) in PRODUCTS and not _obstacle(reader, self.half, g)
                for reader in calls
                if reader is not None
            )
            for calls in readers
        ]
        if call.ty.dtype != WIDE or not any(is_stored):
            raise Leave
        return is_stored

    def rewrite(self, call: Any, facts: list[bool], g: Graph) -> Any:
        values = [
            relax.op.astype(value, self.half) if is_wide and not g.is_constant(value) else value
            for value, is_wide in zip(call.args, facts, strict=True)
        ]
        if operator_name(call) not in PRODUCTS:
            widened = [
                relax.op.astype(value, WIDE) if is_half else value
                for value, is_half in zip(values, facts, strict=True)
            ]
            return relax.Call(call.op, widened, call.attrs)
        factors = [
            g.constant(g.array(value).astype(self.half)) if g.is_constant(value) else value
            for value in values
        ]
        if operator_name(call) == MATMUL:
            product = relax.op.matmul(*factors, out_dtype=WIDE)
        else:
            product = copy_convolution(call, *factors, out_dtype=WIDE)
        return product if call.ty.dtype == WIDE else relax.op.astype(product, call.ty.dtype)


def _obstacle(call: Any, half: str, g: Graph) -> str:
    """Return why a product's factors cannot be rounded to 16 bits; empty if they can."""
    types = {str(value.ty.dtype) for value in call.args}
    if types == {half} and call.ty.dtype == WIDE:
        return "the factors have 16 bits already"
    if types not in ({WIDE}, {half}):
        return f"the factors are neither float32 nor {half}"
    largest = float(ml_dtypes.finfo(half).max)  # type: ignore[no-untyped-call]
    arrays = [g.array(value) for value in call.args if g.is_constant(value)]
    if any(np.abs(array).max(initial=0) > largest for array in arrays):
        return f"a weight is over {largest:,.0f}, the largest {half}"
    return ""


# Operators that move numbers without computing, or choose the largest ones.
_MOVES = tuple(
    f"relax.{name}"
    for name in (
        *("broadcast_to", "expand_dims", "flatten", "permute_dims", "reshape", "squeeze", "strided_slice"),
        *("nn.max_pool1d", "nn.max_pool2d"),
    )
)
_JOINS = ("relax.concat",)


class RoundBeforeMoves(Pass[Any]):
    """Rounds to 16 bits before reshapes, transposes, max pooling and joins, not after."""

    name, match = "round_before_moves", (CAST,)
    dtype = ""
    after = ("half_products",)

    def check(self, call: Any, g: Graph) -> Any:
        """Return the move before a cast from float32 to a 16-bit type."""
        if call.args[0].ty.dtype != WIDE or call.ty.dtype not in ("float16", "bfloat16"):
            raise Leave("the cast is not from float32 to 16 bits")
        move = _move(call.args[0], g)
        if move is None:
            raise Leave("no move that only this cast reads is before it")
        return move

    def rewrite(self, call: Any, facts: Any, g: Graph) -> Any:
        return _rounded(call.args[0], call.ty.dtype, g)


def _move(value: Any, g: Graph) -> Any | None:
    """Return the move that computes a value, or None if there is none to round before.

    The transpose of a product of two computed factors becomes part of the product's
    function (`fuse_transposes_into_batched_matmul`), which rounds what it stores.
    """
    move = g.producer(value, *_MOVES, *_JOINS) if g.has_one_reader(value) else None
    if move is not None and operator_name(move) == "relax.permute_dims":
        product = g.producer(move.args[0], MATMUL)
        if product is not None and not g.is_constant(product.args[1]):
            return None
    return move


def _rounded(value: Any, dtype: str, g: Graph) -> Any:
    """Return the value in 16 bits, rounded before the moves that compute it."""
    move = _move(value, g)
    if move is None:
        return relax.op.astype(value, dtype)
    if operator_name(move) in _JOINS:
        parts = [_rounded(part, dtype, g) for part in g.tuple_fields(move.args[0])]
        return relax.Call(move.op, [relax.Tuple(parts)], move.attrs)
    data, *parameters = move.args
    return relax.Call(move.op, [_rounded(data, dtype, g), *parameters], move.attrs)
