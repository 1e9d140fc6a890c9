"""Decoding, sums and encoding: operators, and the arithmetic that recipes make of them."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

SIZES = 2, 3, 4, 8
RNG = np.random.default_rng(7)
SUMS = RNG.integers(-20_000, 20_000, SIZES).astype("int32")
BYTES = RNG.integers(0, 256, SIZES).astype("uint8")
Emit = Callable[..., Any]


def number(value: float) -> Any:
    return relax.const(value, "float32")


def vector(seed: int, least: float, most: float) -> Any:
    values = np.random.default_rng(seed).uniform(least, most, (1, 1, 1, SIZES[-1]))
    return relax.const(values.astype("float32"))


def encoded(emit: Emit, value: Any, scale: float, zero: float = 0.0) -> Any:
    whole = emit(relax.op.round(emit(relax.op.multiply(value, number(1 / scale)))))
    moved = emit(relax.op.add(whole, number(zero))) if zero else whole
    within = emit(relax.op.minimum(emit(relax.op.maximum(moved, number(0.0))), number(255.0)))
    return relax.op.astype(emit(relax.op.astype(within, "int32")), "uint8")


def decoded(emit: Emit, value: Any, scale: float, zero: float) -> Any:
    less = emit(relax.op.subtract(emit(relax.op.astype(value, "float32")), number(zero)))
    return emit(relax.op.multiply(less, number(scale)))


def product(emit: Emit, sums: Any, seed: int = 0) -> Any:
    """What stands behind a product: the zero point's part, scales of each output, a bias."""
    columns = np.random.default_rng(seed).integers(-99, 99, SIZES[-1]).astype("int32")
    less = emit(relax.op.subtract(sums, relax.const(columns)))
    real = emit(relax.op.multiply(emit(relax.op.astype(less, "float32")), vector(seed, 0.001, 0.002)))
    return emit(relax.op.add(real, vector(seed + 1, -9, 9)))


def calls(mod: Any) -> list[Any]:
    """All calls that compute the result."""
    found: list[Any] = []
    with tvm.transform.PassContext(opt_level=3):
        kept = relax.transform.DeadCodeElimination()(mod)
    relax.analysis.post_order_visit(
        kept["main"], lambda node: found.append(node) if isinstance(node, relax.Call) else None
    )
    return found


def dequantized(value: Any, scale: float, zero: int) -> Any:
    """The operator, before it becomes arithmetic."""
    steps = relax.const(np.array(zero, str(value.ty.dtype)))
    return relax.op.dequantize(value, number(scale), steps, axis=0)


def quantized(value: Any, scale: float, zero: int, dtype: str = "uint8") -> Any:
    return relax.op.quantize(value, number(scale), relax.const(np.array(zero, dtype)), 0, dtype)
