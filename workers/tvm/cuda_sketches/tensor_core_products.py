"""Products on tensor cores by `mma.sync`, with `ldmatrix` and several stages of asynchronous copies.

A thread block computes a tile of warps * fragments * 16 rows and columns. Each step of the
depth copies a tile of both operands to shared memory while earlier copies are multiplied.
Rows of shared tiles are permuted or padded, so that `ldmatrix` has no bank conflicts. The
result passes through shared memory, from where the epilogue is applied to whole vectors. A
product with few tiles is split along its depth: partial sums go to memory, and a second
kernel adds them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain, auto_inline_producers
from tvm.s_tir.tensor_intrin.cuda import (
    get_mma_intrin_group,
    shared_16x16_to_ldmatrix_32x8_layout,
    shared_16x32_to_ldmatrix_32x16_layout,
)

from mallorn.core.compute_capability import WARP_SIZE, capability
from mallorn.core.values.machine import element_bytes
from mallorn.graphc.matmul.tensor_core_instructions import own_name, tf32_layout
from mallorn.workers.tvm.cuda_sketches.blocks import REFUSED, VECTOR_BYTES, bind, describe
from mallorn.workers.tvm.normalized_product import NormalizedProduct, normalize

KIND: Final = "tensor core product"
_OLDEST: Final = 80  # compute capability from which these instructions exist
_SHARED: Final = "shared.dyn"
_SIDE: Final = 16  # rows and columns of a fragment
# Depth of a fragment, and types of sums, by type of operands.
_DEPTHS: Final = {"float16": 16, "bfloat16": 16, "tfloat32": 8, "int8": 32}
_SUMS: Final = {"float16": "float16 float32", "bfloat16": "float32", "tfloat32": "float32", "int8": "int32"}
_MOST_FRAGMENTS: Final = 8  # of a warp along each side, and of a step along the depth
_BANKS_BYTES: Final = 128  # of shared memory that all banks serve at a time
_ADDING_THREADS: Final = 128  # of a block of the kernel that adds partial sums
_Layout = Callable[[Any, Any], tuple[Any, Any]]
#: Rows and columns of a fragment as it lies in shared memory, and which lane holds what of it:
#: by type, whether the sum runs along its rows, and the operand's index. `ldmatrix` does not
#: transpose bytes, so bytes must follow each other along the sum.
_LAYOUTS: Final[dict[tuple[str, bool, int], tuple[int, int, _Layout]]] = {
    **{
        (dtype, is_depth_innermost, index): (16, 16, shared_16x16_to_ldmatrix_32x8_layout)
        for dtype in ("float16", "bfloat16")
        for is_depth_innermost in (False, True)
        for index in (0, 1)
    },
    **{("tfloat32", row, index): tf32_layout(index, row) for row in (False, True) for index in (0, 1)},
    ("int8", True, 0): (16, 32, shared_16x32_to_ldmatrix_32x16_layout),
    ("int8", True, 1): (16, 32, shared_16x32_to_ldmatrix_32x16_layout),
}


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
    if capability(target.attrs["arch"]).number < _OLDEST:
        return
    for variant in VARIANTS:
        with suppress(*REFUSED, AssertionError):
            if (product := _normalize(module)) is None:
                return
            if element_bytes(product.operands[0].dtype) == 2:
                yield _apply(product, variant)
            elif variant.is_permuted or variant.is_split:
                yield _apply(product, replace(variant, is_permuted=False))


def _normalize(module: Any) -> NormalizedProduct | None:
    """Return the program's product if tensor cores have instructions for its types."""
    for depths in ((16, 32, 64), (32, 64)):  # fragments of bytes are deeper
        product = normalize(module, ((_SIDE, 32, 64, 128), (_SIDE, 32, 64, 128), depths))
        if product is None or len({operand.dtype for operand in product.operands}) > 1:
            return None
        dtype = product.operands[0].dtype
        if product.sums not in _SUMS.get(dtype, "").split():
            return None
        if product.extents[-1] % _DEPTHS[dtype] == 0:
            return product
    return None


def _apply(product: NormalizedProduct, variant: Variant) -> Any:
    schedule, block = product.schedule, product.block
    dtype = product.operands[0].dtype
    fragment_depth = _DEPTHS[dtype]
    left, right = product.operands
    names = get_mma_intrin_group(
        _SHARED,
        _SHARED,
        "float16" if dtype in ("bfloat16", "tfloat32") else dtype,
        product.sums,
        trans_a=not left.is_depth_innermost,
        trans_b=right.is_depth_innermost,
        # The other form of the store fails where TVM reuses the operands' shared memory for sums.
        not_use_mma_store_intrinic=True,
    )
    instructions = {step: own_name(name, dtype) for step, name in names.items()}

    # Loops: blocks, warps, steps, and the fragments that one warp multiplies in a step.
    depth = schedule.get_loops(block)[-1]
    depth, in_fragment = schedule.split(depth, [None, fragment_depth])
    depth_tile = _sample(schedule, depth, [2] if variant.is_split else [], [4])
    splits, steps, fragments = schedule.split(depth, depth_tile if variant.is_split else [1, *depth_tile])
    final = schedule.rfactor(splits, 0) if variant.is_split else None
    if final is not None:
        block, final = final, block
    batch, rows, columns, splits, steps, fragments, in_fragment = schedule.get_loops(block)
    rows, row_in_fragment = schedule.split(rows, [None, _SIDE])
    columns, column_in_fragment = schedule.split(columns, [None, _SIDE])
    schedule.reorder(
        *(batch, splits, rows, columns, steps, fragments),
        *(row_in_fragment, column_in_fragment, in_fragment),
    )
    fragment_block = schedule.blockize(row_in_fragment)
    row_tile = _sample(schedule, rows, [], [1, 2, 4])
    column_tile = _sample(schedule, columns, [], [2, 4])
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
    result = schedule.cache_write(fragment_block, 0, _SHARED)
    sums = schedule.cache_write(fragment_block, 0, "warp")
    for copy in (sums, result):
        schedule.reverse_compute_at(copy, warp_columns, preserve_unit_loops=True)

    for index, operand in enumerate(product.operands):
        copy = schedule.cache_read(fragment_block, index, _SHARED)
        schedule.compute_at(copy, steps, preserve_unit_loops=True)
        auto_inline_producers(schedule, copy)
        loops = schedule.fuse(*schedule.get_loops(copy)[-2:])
        *_, y, z, x, vector = schedule.split(loops, [None, *warps, WARP_SIZE, operand.vector])
        bind(schedule, [y, z, x], "threadIdx.y", "threadIdx.z", "threadIdx.x")
        schedule.vectorize(vector)
        if variant.is_permuted:
            schedule.annotate(copy, "permuted_layout", f"g2s_{'AB'[index]}")
        else:
            # `ldmatrix` reads 8 rows of 16 bytes; lanes that load elements, 4 rows of 32 bytes.
            is_by_element = dtype == "tfloat32" and not operand.is_depth_innermost
            rows_at_once, period = (4, 4) if is_by_element else (8, 2)
            unit = _BANKS_BYTES // rows_at_once // int(element_bytes(operand.dtype))
            schedule.storage_align(copy, 0, axis=-2, factor=period * unit, offset=unit)

    layouts = [
        _LAYOUTS[dtype, operand.is_depth_innermost, index] for index, operand in enumerate(product.operands)
    ]
    for index, (rows_of, columns_of, layout) in enumerate(layouts):
        load = schedule.cache_read(fragment_block, index, "warp")
        schedule.compute_at(load, fragments, preserve_unit_loops=True)
        outer = _split_into_fragments(schedule, load, rows_of, columns_of)
        schedule.transform_layout(load, ("write", 0), _in_fragments(rows_of, columns_of, layout))
        load = schedule.blockize(outer)
        if variant.is_permuted:
            schedule.annotate(load, "permuted_layout", f"s2l_{'AB'[index]}")
        schedule.tensorize(load, instructions[f"load_{'ab'[index]}"])

    schedule.transform_layout(
        fragment_block, ("write", 0), _in_fragments(_SIDE, _SIDE, shared_16x16_to_ldmatrix_32x8_layout)
    )
    zeros = schedule.decompose_reduction(fragment_block, steps)
    schedule.tensorize(schedule.get_loops(schedule.get_child_blocks(zeros)[0])[-2], instructions["init"])
    schedule.tensorize(fragment_block, instructions["compute"])
    store = schedule.blockize(_split_into_fragments(schedule, sums, _SIDE, _SIDE))
    banks = _BANKS_BYTES // int(element_bytes(product.sums))
    schedule.storage_align(store, 0, axis=-2, factor=banks, offset=banks // 4)
    schedule.tensorize(store, instructions["store"])
    if final is None:
        auto_inline_consumer_chain(schedule, result)
    copy = schedule.fuse(*schedule.get_loops(result)[-2:])
    types = {product.sums, product.sums if final is not None else product.result}
    elements = VECTOR_BYTES // max(int(element_bytes(each_type)) for each_type in types)
    _, lanes, vector = schedule.split(copy, [None, WARP_SIZE, elements])
    schedule.bind(lanes, "threadIdx.x")
    schedule.vectorize(vector)
    if final is not None:
        _add_partial_sums(schedule, final, product.result)
    schedule.annotate(steps, "software_pipeline_stage", [0, 0, variant.stages - 1])
    schedule.annotate(steps, "software_pipeline_order", [0, 1, 2])
    schedule.annotate(steps, "software_pipeline_async_stages", [0])
    return describe(
        schedule,
        KIND,
        [
            "depth: splits steps fragments" if variant.is_split else "depth: steps fragments",
            "rows: grid group warps fragments",
            "columns: grid warps fragments",
        ],
        fragment=[_SIDE, _SIDE, fragment_depth],
        operands=dtype,
        sums=product.sums,
        result=product.result,
        depth_innermost=[operand.is_depth_innermost for operand in product.operands],
        vectors=[operand.vector for operand in product.operands],
        stages=variant.stages,
        permuted=variant.is_permuted,
    )


def _sample(schedule: Any, loop: Any, outer: Sequence[int], inner: Sequence[int]) -> list[Any]:
    """Sample factors of a loop; the decision with which the schedule is built has factors
    near `outer`, what remains, and factors near `inner`. Without one, TVM would draw
    factors for which the following steps may fail."""
    remaining = int(schedule.get(loop).extent)
    factors = []
    for factor in (*outer, *reversed(inner)):
        factors.append(gcd(remaining, factor))
        remaining //= factors[-1]
    split = len(outer)
    decision = [*factors[:split], remaining, *reversed(factors[split:])]
    tile: list[Any] = schedule.sample_perfect_tile(loop, len(decision), _MOST_FRAGMENTS, decision)
    return tile


def _split_into_fragments(schedule: Any, block: Any, rows: int, columns: int) -> Any:
    """Split the last two loops of a block into tiles; return the first loop within a tile."""
    *_, outer_rows, outer_columns = schedule.get_loops(block)
    outer_rows, inner_rows = schedule.split(outer_rows, [None, rows])
    outer_columns, inner_columns = schedule.split(outer_columns, [None, columns])
    schedule.reorder(outer_rows, outer_columns, inner_rows, inner_columns)
    return inner_rows


def _in_fragments(rows: int, columns: int, layout: _Layout) -> Callable[..., tuple[Any, ...]]:
    """Return the index map of a buffer whose last two axes are stored by fragments."""

    def index_map(*indices: Any) -> tuple[Any, ...]:
        *outer, row, column = indices
        return (*outer, row // rows, column // columns, *layout(row % rows, column % columns))

    return index_map


def _add_partial_sums(schedule: Any, final: Any, dtype: str) -> None:
    """Schedule the kernel that adds the partial sums of a product that is split."""
    result = schedule.cache_write(final, 0, "local")
    auto_inline_consumer_chain(schedule, result)
    *rows, columns = schedule.get_loops(result)
    elements = VECTOR_BYTES // max(4, int(element_bytes(dtype)))
    grid, threads, vector = schedule.split(columns, [None, _ADDING_THREADS, elements])
    schedule.bind(schedule.fuse(*rows), "blockIdx.x")
    schedule.bind(grid, "blockIdx.y")
    schedule.bind(threads, "threadIdx.x")
    schedule.vectorize(vector)
    schedule.compute_at(final, threads, preserve_unit_loops=True)
    _, _, _, splits, *_, elements_of_sum = schedule.get_loops(final)
    schedule.vectorize(elements_of_sum)
    schedule.decompose_reduction(final, splits)
