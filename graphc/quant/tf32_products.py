"""Round the factors of float32 matrix products to TF32, as the tensor cores of GPUs multiply them.

A TF32 number is a float32 with 10 bits of mantissa. The rounding is part of the tensor
function, so that its task is another than float32's, and every machine computes the same
factors: by integer arithmetic where it has no instruction.
"""

from typing import Any

from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import Add, BufferStore, IterVar, Mul, Select, Var, const, reinterpret
from tvm_ffi import structural_equal, structural_map

from mallorn.graphc.core.graph_pass import Leave, TensorFunctionPass
from mallorn.graphc.core.graph_rewriting import collect_nodes

WIDE = "float32"
_EXPONENT, _HALF, _MASK = 0x7F800000, 0x1000, 0xFFFFE000  # bits of a float32


def round_to_tf32(value: Any) -> Any:
    """Return the TF32 number next to a float32, the larger of two; infinity and NaN remain."""
    bits = reinterpret("uint32", value)
    exponent, half, mask = (const(number, "uint32") for number in (_EXPONENT, _HALF, _MASK))
    return Select((bits & exponent) != exponent, reinterpret(WIDE, (bits + half) & mask), value)


def before_rounding(value: Any) -> Any:
    """Return the number that an expression rounds to TF32, or the expression if it rounds none."""
    if not isinstance(value, Select) or str(value.ty.dtype) != WIDE:
        return value
    source = value.false_value
    return source if structural_equal(value, round_to_tf32(source)) else value


def rounds_factors(block: Any) -> bool:
    """Return whether a block sums products of factors that it rounds to TF32."""
    return any(before_rounding(factor) is not factor for factor in _factors(block))


class Tf32Products(TensorFunctionPass[None]):
    """Rounds the factors of float32 matrix products to TF32; sums stay float32.

    Products without rows or columns, as of depthwise convolutions, are left as they are.
    """

    name = "tf32_products"

    def check(self, function: Any) -> None:
        if not any(map(_is_product, collect_nodes(function.body, SBlock))):
            raise Leave("the function has no product of float32 matrices")

    def rewrite(self, function: Any, facts: None) -> Any:
        def round_factors(block: Any) -> Any:
            if not _is_product(block):
                return block
            store, (left, right) = block.body, map(round_to_tf32, _factors(block))
            return SBlock(
                *(block.iter_vars, block.reads, block.writes, block.name_hint),
                *(BufferStore(store.buffer, store.value.a + left * right, store.indices), block.init),
                *(block.alloc_buffers, block.match_buffers, block.annotations),
            )

        return structural_map(function, (SBlock, round_factors))


def _factors(block: Any) -> tuple[Any, ...]:
    """Return the factors of the product that a block sums up; empty for other blocks."""
    total = block.body.value if isinstance(block.body, BufferStore) else None
    product = total.b if isinstance(total, Add) else None
    return (product.a, product.b) if isinstance(product, Mul) else ()


def _is_product(block: Any) -> bool:
    """Return whether a block sums products of two float32 matrices."""
    factors = _factors(block)
    if not factors or not all(isinstance(load, TensorLoad) and load.ty.dtype == WIDE for load in factors):
        return False
    axes = [axis for axis in block.iter_vars if int(axis.dom.extent) > 1]
    spatial = {hash(axis.var) for axis in axes if axis.iter_type == IterVar.DataPar}
    left, right = ({hash(var) for var in collect_nodes(load, Var)} for load in factors)
    return len(axes) > len(spatial) and bool(spatial & left - right) and bool(spatial & right - left)
