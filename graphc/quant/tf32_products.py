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
_EXPONENT, _HALF, _KEPT = 0x7F800000, 0x1000, 0xFFFFE000  # bits of a float32


def round_to_tf32(value: Any) -> Any:
    """Return the TF32 number next to a float32, the larger of two; infinity and NaN remain."""
    bits = reinterpret("uint32", value)
    mask, half, kept = (const(number, "uint32") for number in (_EXPONENT, _HALF, _KEPT))
    return Select((bits & mask) != mask, reinterpret(WIDE, (bits + half) & kept), value)


def before_rounding(value: Any) -> Any:
    """Return the number that an expression rounds to TF32, or the expression if it rounds none."""
    if isinstance(value, Select) and structural_equal(value, round_to_tf32(value.false_value)):
        return value.false_value
    return value


def rounds_factors(block: Any) -> bool:
    """Return whether a block sums products of factors that it rounds to TF32."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    product = value.b if isinstance(value, Add) else None
    return isinstance(product, Mul) and all(
        before_rounding(factor) is not factor for factor in (product.a, product.b)
    )


class Tf32Products(TensorFunctionPass[None]):
    """Rounds the factors of float32 matrix products to TF32; sums stay float32.

    Products without rows or columns, as of depthwise convolutions, are left as they are.
    """

    name = "tf32_products"

    def check(self, function: Any) -> None:
        if not any(map(_is_product, collect_nodes(function.body, SBlock))):
            raise Leave("the function has no product of float32 matrices")

    def rewrite(self, function: Any, facts: None) -> Any:
        return structural_map(function, (SBlock, _round_factors))


def _round_factors(block: Any) -> Any:
    if not _is_product(block):
        return block
    store = block.body
    product = store.value.b
    total = store.value.a + round_to_tf32(product.a) * round_to_tf32(product.b)
    return SBlock(
        *(block.iter_vars, block.reads, block.writes, block.name_hint),
        *(BufferStore(store.buffer, total, store.indices), block.init),
        *(block.alloc_buffers, block.match_buffers, block.annotations),
    )


def _is_product(block: Any) -> bool:
    """Return whether a block sums products of two float32 matrices."""
    value = block.body.value if isinstance(block.body, BufferStore) else None
    if not (isinstance(value, Add) and isinstance(value.b, Mul)):
        return False
    factors = value.b.a, value.b.b
    if not all(isinstance(each, TensorLoad) and str(each.ty.dtype) == WIDE for each in factors):
        return False
    axes = [axis for axis in block.iter_vars if int(axis.dom.extent) > 1]
    spatial = {hash(axis.var) for axis in axes if axis.iter_type == IterVar.DataPar}
    left, right = (
        {hash(var) for index in each.indices for var in collect_nodes(index, Var)} for each in factors
    )
    return len(axes) > len(spatial) and bool(spatial & left - right) and bool(spatial & right - left)
