"""Products on tensor cores by ``mma.sync``, with `ldmatrix` and several stages of asynchronous copies.

A thread block computes a tile of warps * fragments * 16 rows and columns. Each step of the
depth copies a tile of both operands to shared memory while earlier copies are multiplied.
Rows of shared tiles are permuted or padded, so that `ldmatrix` has no bank conflicts. The
result passes through shared memory, from where the epilogue is applied to whole vectors. A
product with few tiles is split along its depth: partial sums go to memory, and a second
kernel adds them.

Attention in one kernel multiplies fragments by the same steps.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain, auto_inline_producers
from tvm.s_tir.tensor_intrin.cuda import (
    get_mma_intrin_group,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
)

from mallorn.core.values.machine import element_bytes
from mallorn.kinds.cuda.compute_capability import AMPERE, BANK_BYTES, BANKS, WARP_SIZE, capability
from mallorn.kinds.cuda.graph.tensor_core_instructions import own_name, tf32_layout
from mallorn.kinds.cuda.sketches import blocks
from mallorn.workers.tvm.programs.normalized_product import NormalizedProduct, normalize

SHARED: Final = "shared.dyn"
SIDE: Final = 16  # rows and columns of a fragment of sums
MOST_FRAGMENTS: Final = 8  # of a warp along each side, and of a step along the depth
Layout = Callable[[Any, Any], tuple[Any, Any]]
#: Rows and columns of a fragment as it lies in shared memory, and which lane holds what of it.
Fragment = tuple[int, int, Layout]
HALVES: Final[Fragment] = (SIDE, SIDE, shared_16x16_to_ldmatrix_32x8_layout)
# Depth of a fragment, and types of sums, by type of operands.
DEPTHS: Final = {"float16": 16, "bfloat16": 16, "tfloat32": 8, "int8": 32}
_SUMS: Final[dict[str, tuple[str, ...]]] = {
    "float16": ("float16", "float32"),
    **dict.fromkeys(("bfloat16", "tfloat32"), ("float32",)),
    "int8": ("int32",),
}
#: Fragments by type, whether the sum runs along their rows, and the operand's index.
#: `ldmatrix` does not transpose bytes, so bytes must follow each other along the sum.
FRAGMENTS: Final[dict[tuple[str, bool, int], Fragment]] = {
    **{
        (dtype, is_depth_innermost, index): HALVES
        for dtype in ("float16", "bfloat16")
        for is_depth_innermost in (False, True)
        for index in (0, 1)
    },
    **{("tfloat32", row, index): tf32_layout(index, row) for row in (False, True) for index in (0, 1)},
    ("int8", True, 0): (16, 32, shared_16x32_to_ldmatrix_32x16_layout),
    ("int8", True, 1): (16, 32, shared_16x32_to_ldmatrix_32x16_layout),
}
KIND: Final = "tensor core product"


def find_product(module: Any, target: Any) -> NormalizedProduct | None:
    """Return the program's product if tensor cores have instructions for its types and layout."""
    if capability(target.attrs["arch"]).number < AMPERE:
        return None
    for depths in ((16, 32, 64), (32, 64)):  # fragments of bytes are deeper
        product = normalize(module, ((SIDE, 32, 64, 128), (SIDE, 32, 64, 128), depths))
        if product is None or len({operand.dtype for operand in product.operands}) > 1:
            return None
        dtype = product.operands[0].dtype
        keys = {(dtype, operand.is_depth_innermost, operand.index) for operand in product.operands}
        if product.sums not in _SUMS.get(dtype, ()) or keys - FRAGMENTS.keys():
            return None
        if product.extents[-1] % DEPTHS[dtype] == 0:
            return product
    return None


def copy_by_warps(schedule: Any, copy: Any, warps: Sequence[Any], vector: int) -> None:
    """Share the vectors of a copy to shared memory among all threads of a block, and inline
    what makes them. Packed numbers are decoded to registers first, one by one."""
    *_, rows, columns = schedule.get_loops(copy)
    columns, lanes = schedule.split(columns, [None, vector])
    *_, y, z, x = schedule.split(schedule.fuse(rows, columns), [None, *warps, WARP_SIZE])
    blocks.bind(schedule, [y, z, x], "threadIdx.y", "threadIdx.z", "threadIdx.x")
    schedule.vectorize(lanes)
    numbers = schedule.cache_read(copy, 0, "local")
    schedule.compute_at(numbers, x, preserve_unit_loops=True)
    auto_inline_producers(schedule, numbers)
    if blocks.reads_neighbours(schedule, numbers, vector):
        schedule.compute_inline(numbers)
    else:
        schedule.unroll(schedule.get_loops(numbers)[-1])


def pad_rows(schedule: Any, block: Any, dtype: str, rows_at_once: int = 8) -> None:
    """Pad rows of a tile in shared memory, so that loads have no bank conflicts: `ldmatrix` reads
    8 rows of 16 bytes at once, and lanes that load single elements 4 rows of 32 bytes."""
    unit = BANKS * BANK_BYTES // rows_at_once // int(element_bytes(dtype))
    factor = 2 * unit if rows_at_once == 8 else 4 * unit
    schedule.storage_align(block, 0, axis=-2, factor=factor, offset=unit)


def multiply_fragments(
    schedule: Any,
    product: Any,
    sums: Any,
    loops: tuple[Any, Any],
    fragments: Sequence[Fragment],
    instructions: Mapping[str, str],
    permutation: str = "",
) -> None:
    """Multiply by `mma`. `loops` are those over steps, before which sums are cleared, and over
    fragments of the depth, which are loaded from shared memory. `sums` stores the sums there."""
    for side, (rows, columns, layout) in zip("ab", fragments, strict=True):
        load = schedule.cache_read(product, "ab".index(side), "warp")
        schedule.compute_at(load, loops[1], preserve_unit_loops=True)
        outer = _split_into_fragments(schedule, load, rows, columns)
        schedule.transform_layout(load, ("write", 0), _in_fragments(rows, columns, layout))
        load = schedule.blockize(outer)
        if permutation:
            schedule.annotate(load, "permuted_layout", f"{permutation}_{side.upper()}")
        schedule.tensorize(load, instructions[f"load_{side}"])
    schedule.transform_layout(product, ("write", 0), _in_fragments(*HALVES))
    zeros = schedule.decompose_reduction(product, loops[0])
    schedule.tensorize(schedule.get_loops(schedule.get_child_blocks(zeros)[0])[-2], instructions["init"])
    schedule.tensorize(product, instructions["compute"])
    dtype = str(schedule.get(sums).writes[0].source.dtype)
    store = schedule.blockize(_split_into_fragments(schedule, sums, SIDE, SIDE))
    banks = BANKS * BANK_BYTES // int(element_bytes(dtype))
    schedule.storage_align(store, 0, axis=-2, factor=banks, offset=banks // 4)
    schedule.tensorize(store, instructions["store"])


def pipeline(schedule: Any, steps: Any, copies: int, stages: int) -> None:
    """Copy to shared memory asynchronously, some steps before the product reads the copies."""
    schedule.annotate(steps, "software_pipeline_stage", [*[0] * copies, stages - 1])
    schedule.annotate(steps, "software_pipeline_order", [*range(copies + 1)])
    schedule.annotate(steps, "software_pipeline_async_stages", [0])


def _split_into_fragments(schedule: Any, block: Any, rows: int, columns: int) -> Any:
    """Split the last two loops of a block into tiles; return the first loop in a tile."""
    *_, outer_rows, outer_columns = schedule.get_loops(block)
    outer_rows, inner_rows = schedule.split(outer_rows, [None, rows])
    outer_columns, inner_columns = schedule.split(outer_columns, [None, columns])
    schedule.reorder(outer_rows, outer_columns, inner_rows, inner_columns)
    return inner_rows


def _in_fragments(rows: int, columns: int, layout: Layout) -> Callable[..., tuple[Any, ...]]:
    """Return the index map of a buffer whose last two axes are stored by fragments."""

    def index_map(*indices: Any) -> tuple[Any, ...]:
        *outer, row, column = indices
        return (*outer, row // rows, column // columns, *layout(row % rows, column % columns))

    return index_map


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
