"""Products on tensor cores by ``mma.sync``, with `ldmatrix` and several stages of asynchronous copies.

A thread block computes a tile of warps * fragments * 16 rows and columns. Each step of the
depth copies a tile of both operands to shared memory while earlier copies are multiplied.
Rows of shared tiles are permuted or padded, so that `ldmatrix` has no bank conflicts. The
result passes through shared memory, from where the epilogue is applied to whole vectors. A
product with few tiles is split along its depth: partial sums go to memory, and a second
kernel adds them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain
from tvm.s_tir.tensor_intrin.cuda import get_mma_intrin_group

from mallorn.core.compute_capability import WARP_SIZE
from mallorn.core.values.machine import element_bytes
from mallorn.graphc.matmul.tensor_core_instructions import own_name
from mallorn.workers.tvm.programs.normalized_product import NormalizedProduct
from mallorn.workers.tvm.space.cuda_sketches import blocks
from mallorn.workers.tvm.space.cuda_sketches.fragments import (
    DEPTHS,
    FRAGMENTS,
    MOST_FRAGMENTS,
    SHARED,
    SIDE,
    copy_by_warps,
    find_product,
    multiply_fragments,
    pad_rows,
    pipeline,
)

KIND: Final = "tensor core product"


@dataclass(frozen=True, slots=True)
class Variant:
    """Properties that a sketch fixes, because a trace cannot leave them open."""

    stages: int
    is_permuted: bool = False  # rows of shared tiles are permuted; they have 32 or n * 64 halves
    is_split: bool = False


VARIANTS: Final = (
    Variant(3),
    Variant(2, is_permuted=True),
    Variant(3, is_permuted=True),
    Variant(4, is_permuted=True),
    Variant(5, is_permuted=True),
    Variant(3, is_split=True),
)


def schedules(module: Any, target: Any) -> Iterator[Any]:
    """Yield schedules on tensor cores, with open choices, if the program is such a product."""
    for variant in VARIANTS:
        with suppress(*blocks.REFUSED, AssertionError):
            if (product := find_product(module, target)) is None:
                return
            if element_bytes(product.operands[0].dtype) == 2:
                yield _apply(product, variant)
            elif variant.is_permuted or variant.is_split:
                yield _apply(product, replace(variant, is_permuted=False))


def _apply(product: NormalizedProduct, variant: Variant) -> Any:
    schedule, block = product.schedule, product.block
    dtype = product.operands[0].dtype
    fragment_depth = DEPTHS[dtype]
    names = get_mma_intrin_group(
        SHARED,
        SHARED,
        "float16" if dtype in ("bfloat16", "tfloat32") else dtype,
        product.sums,
        trans_a=not product.operands[0].is_depth_innermost,
        trans_b=product.operands[1].is_depth_innermost,
        # The other form of the store fails where TVM reuses the operands' shared memory for sums.
        not_use_mma_store_intrinic=True,
    )
    instructions = {step: own_name(name, dtype) for step, name in names.items()}

    # Loops: blocks, warps, steps, and the fragments that one warp multiplies in a step.
    depth = schedule.get_loops(block)[-1]
    depth, in_fragment = schedule.split(depth, [None, fragment_depth])
    depth_tile = blocks.sample_tile(schedule, depth, [2] * variant.is_split + [0, 4], MOST_FRAGMENTS)
    splits, steps, fragments = schedule.split(depth, depth_tile if variant.is_split else [1, *depth_tile])
    final = schedule.rfactor(splits, 0) if variant.is_split else None
    if final is not None:
        block, final = final, block
    batch, rows, columns, splits, steps, fragments, in_fragment = schedule.get_loops(block)
    rows, row_in_fragment = schedule.split(rows, [None, SIDE])
    columns, column_in_fragment = schedule.split(columns, [None, SIDE])
    schedule.reorder(
        *(batch, splits, rows, columns, steps, fragments),
        *(row_in_fragment, column_in_fragment, in_fragment),
    )
    fragment_block = schedule.blockize(row_in_fragment)
    row_tile = blocks.sample_tile(schedule, rows, [0, 1, 2, 4], MOST_FRAGMENTS)
    column_tile = blocks.sample_tile(schedule, columns, [0, 2, 4], MOST_FRAGMENTS)
    grid_rows, group, warp_rows, fragment_rows = schedule.split(rows, row_tile)
    grid_columns, warp_columns, fragment_columns = schedule.split(columns, column_tile)
    schedule.reorder(
        *(batch, splits, grid_rows, grid_columns, group, warp_rows, warp_columns),
        *(steps, fragments, fragment_rows, fragment_columns),
    )
    # A group of block rows reads the same columns before the next columns are read.
    schedule.bind(schedule.fuse(batch, splits, grid_rows, grid_columns, group), "blockIdx.x")
    schedule.bind(warp_rows, "threadIdx.y")
    schedule.bind(warp_columns, "threadIdx.z")
    warps = (row_tile[2], column_tile[1])

    # The result goes from fragments to shared memory, and from there to memory.
    result = schedule.cache_write(fragment_block, 0, SHARED)
    sums = schedule.cache_write(fragment_block, 0, "warp")
    for copy in (sums, result):
        schedule.reverse_compute_at(copy, warp_columns, preserve_unit_loops=True)

    for index, operand in enumerate(product.operands):
        copy = schedule.cache_read(fragment_block, index, SHARED)
        schedule.compute_at(copy, steps, preserve_unit_loops=True)
        copy_by_warps(schedule, copy, warps, operand.vector)
        if variant.is_permuted:
            schedule.annotate(copy, "permuted_layout", f"g2s_{'AB'[index]}")
        else:
            is_by_element = dtype == "tfloat32" and not operand.is_depth_innermost
            pad_rows(schedule, copy, operand.dtype, 4 if is_by_element else 8)

    layouts = [
        FRAGMENTS[dtype, operand.is_depth_innermost, index] for index, operand in enumerate(product.operands)
    ]
    permutation, loops = "s2l" if variant.is_permuted else "", (steps, fragments)
    multiply_fragments(schedule, fragment_block, sums, loops, layouts, instructions, permutation)
    if final is None:
        auto_inline_consumer_chain(schedule, result)
    copy = schedule.fuse(*schedule.get_loops(result)[-2:])
    types = {product.sums, product.sums if final is not None else product.result}
    elements = blocks.VECTOR_BYTES // max(int(element_bytes(each_type)) for each_type in types)
    _, lanes, vector = schedule.split(copy, [None, WARP_SIZE, elements])
    schedule.bind(lanes, "threadIdx.x")
    schedule.vectorize(vector)
    if final is not None:
        blocks.add_partial_sums(schedule, final, product.result)
    pipeline(schedule, steps, 2, variant.stages)
    return blocks.describe(
        schedule,
        KIND,
        [
            "depth: splits steps fragments" if variant.is_split else "depth: steps fragments",
            "rows: grid group warps fragments",
            "columns: grid warps fragments",
        ],
        fragment=[SIDE, SIDE, fragment_depth],
        operands=dtype,
        sums=product.sums,
        result=product.result,
        depth_innermost=[operand.is_depth_innermost for operand in product.operands],
        vectors=[operand.vector for operand in product.operands],
        stages=variant.stages,
        permuted=variant.is_permuted,
    )
