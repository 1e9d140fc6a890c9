"""Products, batched products and convolutions as one matrix product per batch.

The block that sums becomes C[batch, rows, columns] += A * B, with the loops batch, rows,
columns and depth. Operands keep their innermost axis, so that neighbours in memory stay
neighbours and loads can be vectors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

from tvm.s_tir import Schedule
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import (
    IterKind,
    detect_iter_traits,
    get_reduction_blocks,
    make_iter_fusion_index_map,
)
from tvm.tirx import FloorDiv, IndexMap, IntImm, IterVar, Var
from tvm.tirx.analysis import undefined_vars

from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.graphc.quant.tf32_products import rounds_factors

_LARGEST_VECTOR_BYTES: Final = 16
_MOST_PADDING: Final = 1.07  # of a larger multiple, relative to the smallest one
_BATCH, _DEPTH = IterKind.kIter_S, IterKind.kIter_K
_SIDES: Final = (IterKind.kIter_I, IterKind.kIter_J)


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand of a normalized product, and how its elements lie in memory."""

    index: int  # among the tensors that the block reads
    dtype: str  # "tfloat32" if the product rounds it
    is_depth_innermost: bool  # whether neighbours in memory follow each other along the sum
    vector: int  # elements that one aligned load can read


@dataclass(frozen=True, slots=True)
class NormalizedProduct:
    """A schedule whose block is a matrix product per batch, with padded extents."""

    schedule: Schedule
    block: Any
    operands: tuple[Operand, Operand]  # that with rows, and that with columns
    sums: str  # data type in which the block sums
    result: str  # data type that the program stores
    extents: tuple[int, int, int, int]  # of batch, rows, columns and depth


def normalize(
    module: Any, paddings: Sequence[Sequence[int]], *, is_swappable: bool = False
) -> NormalizedProduct | None:
    """Return the program's only product in normal form, or None if there is none.

    `paddings` lists the multiples, ascending, to which rows, columns and depth may be
    padded. The largest multiple is used that pads little more than the smallest. A
    swappable product has as its columns the side whose results are neighbours in memory; in
    others, the block's first factor has the rows.
    """
    schedule = Schedule(module, debug_mask="none", error_render_level="none")
    root = get_root_block(schedule)
    outputs = schedule.get_output_blocks(root)
    reductions = get_reduction_blocks(schedule, schedule.get_child_blocks(root))
    if not reductions or len(outputs) != 1:
        return None
    (block,) = reductions
    _split_groups(schedule, block)
    original = schedule.get(block)
    if len(original.reads) != 2 or len(original.writes) != 1:
        return None
    copies = [schedule.reindex(block, ("read", index)) for index in range(2)]
    result_copy = schedule.reindex(block, ("write", 0))
    reindexed = schedule.get(block)
    if (traits := detect_iter_traits(reindexed)) is None:
        return None
    *operand_traits, result_traits, block_traits = traits
    kinds = [trait.kind for trait in block_traits]
    innermost_result, _ = _innermost_axis(original, original.writes[0])
    is_swapped = is_swappable and innermost_result is not None and kinds[innermost_result] is _SIDES[0]
    sides = _SIDES[::-1] if is_swapped else _SIDES
    operands = []
    for side in sides:
        index = _SIDES.index(side)
        innermost, vector = _innermost_axis(original, original.reads[index])
        is_depth_innermost = innermost is None or kinds[innermost] is not side
        order = [_BATCH, side, _DEPTH] if is_depth_innermost else [_BATCH, _DEPTH, side]
        index_map = make_iter_fusion_index_map(operand_traits[index], order)
        schedule.transform_layout(copies[index], ("write", 0), index_map)
        dtype = "tfloat32" if rounds_factors(original) else str(reindexed.reads[index].source.dtype)
        operands.append(Operand(index, dtype, is_depth_innermost, vector))
    result_map = make_iter_fusion_index_map(result_traits, [_BATCH, *sides])
    schedule.transform_layout(result_copy, ("read", 0), result_map)
    block_map = make_iter_fusion_index_map(block_traits, [_BATCH, *sides, _DEPTH])
    schedule.transform_block_layout(block, block_map)
    extents = [int(schedule.get(loop).extent) for loop in schedule.get_loops(block)]
    multiples = [1]
    for extent, padding in zip(extents[1:], paddings, strict=True):
        sizes = {multiple: -(-extent // multiple) * multiple for multiple in padding}
        limit = _MOST_PADDING * sizes[padding[0]]
        multiples.append(max(multiple for multiple in padding if sizes[multiple] <= limit))
    schedule.pad_einsum(block, multiples)
    batch, rows, columns, depth = (int(schedule.get(loop).extent) for loop in schedule.get_loops(block))
    return NormalizedProduct(
        schedule,
        block,
        (operands[0], operands[1]),
        sums=str(original.writes[0].source.dtype),
        result=str(schedule.get(outputs[0]).writes[0].source.dtype),
        extents=(batch, rows, columns, depth),
    )


def _split_groups(schedule: Schedule, block: Any) -> None:
    """Make the number of a grouped convolution's group an axis of its own, if the block
    reads an operand at `axis // length`."""
    axes = list(schedule.get(block).iter_vars)
    lengths = {
        hash(quotient.a): int(quotient.b)
        for read in schedule.get(block).reads
        for bound in read.region
        for quotient in collect_nodes(bound.min, FloorDiv)
        if isinstance(quotient.a, Var) and isinstance(quotient.b, IntImm)
    }
    inputs = [Var(f"i{index}", axis.var.ty) for index, axis in enumerate(axes)]
    outputs: list[Any] = []
    for axis, var in zip(axes, inputs, strict=True):
        length = lengths.get(hash(axis.var), 1)
        is_split = length > 1 and int(axis.dom.extent) % length == 0
        outputs += [var // length, var % length] if is_split else [var]
    if len(outputs) > len(inputs):
        schedule.transform_block_layout(block, IndexMap(inputs, outputs, None))


def _innermost_axis(block: Any, read: Any) -> tuple[int | None, int]:
    """Return which axis of the block walks through memory in steps of one element, and how
    many elements an aligned vector can have; None and 1 if no axis does."""
    iter_vars = list(block.iter_vars)
    positions = {hash(iter_var.var): index for index, iter_var in enumerate(iter_vars)}
    *_, last = read.region
    axes = [positions[hash(var)] for var in undefined_vars(last.min) if hash(var) in positions]
    if not axes:
        return None, 1
    innermost = min(axes, key=lambda index: iter_vars[index].iter_type != IterVar.DataPar)
    length, extent = read.source.shape[-1], iter_vars[innermost].dom.extent
    is_plain = last.min.same_as(iter_vars[innermost].var)
    if not (is_plain and isinstance(extent, IntImm) and isinstance(length, IntImm)):
        return innermost, 1
    widest = _LARGEST_VECTOR_BYTES // max(1, int(element_bytes(str(read.source.dtype))))
    return innermost, gcd(widest, int(extent), int(length))
