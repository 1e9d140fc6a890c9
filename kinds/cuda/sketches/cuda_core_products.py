"""Products, batches of them and convolutions on CUDA cores, for types without tensor cores.

Each thread sums up a tile of rows and columns in registers. The depth is walked in steps,
whose tiles of both operands are copied to shared memory while earlier tiles are multiplied.
A thread's rows are groups of neighbours, as are its columns, and neighbouring threads own
the neighbours in between: a warp reads shared memory, and stores results, by vectors that
follow each other. A product with few tiles is split along its depth: partial sums go to
memory, and a second kernel adds them.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import gcd
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain, auto_inline_producers

from mallorn.core.values.machine import element_bytes
from mallorn.kinds.cuda.compute_capability import AMPERE, capability
from mallorn.kinds.cuda.sketches import blocks
from mallorn.kinds.cuda.sketches.tensor_core_products import SHARED, find_product
from mallorn.workers.tvm.programs.normalized_product import NormalizedProduct, normalize

KIND: Final = "cuda core product"
_SIDES: Final = (4, 8, 16, 32, 64, 128)  # multiples to which rows and columns may be padded
_SHORT: Final = 4  # terms of each sum that a thread reads at a time
_MOST_OWN: Final = 8  # rows and columns of a thread
_THREADS: Final = 16  # along rows and columns, of the schedule that is built
#: Stages of copies, and whether the depth is split: of each sketch.
VARIANTS: Final = ((2, False), (3, False), (4, False), (3, True))


def schedules(module: Any, target: Any) -> Iterator[Any]:
    """Yield schedules on CUDA cores, with open choices, if the program is a product that
    tensor cores do not take."""
    with suppress(*blocks.REFUSED, AssertionError):
        if find_product(module, target) is not None:
            return
    has_copies = capability(target.attrs["arch"]).number >= AMPERE
    for stages, is_split in VARIANTS if has_copies else VARIANTS[:1]:
        with suppress(*blocks.REFUSED):
            product = normalize(module, (_SIDES, _SIDES, (_SHORT, 8, 16, 32)), is_swappable=True)
            if product is None:
                return
            yield _apply(product, stages, is_split, has_copies)


def _apply(product: NormalizedProduct, stages: int, is_split: bool, has_copies: bool) -> Any:
    schedule, block = product.schedule, product.block
    widest = blocks.VECTOR_BYTES // int(max(element_bytes(product.sums), element_bytes(product.result)))
    # Rows of a thread are neighbours where the tile's rows are neighbours in memory.
    neighbours = [
        1 if operand.is_depth_innermost else gcd(operand.vector, widest, _SHORT)
        for operand in product.operands
    ]

    # Loops: blocks, groups, threads, steps, and terms that a thread multiplies in a step.
    depth, short = schedule.split(schedule.get_loops(block)[-1], [None, _SHORT])
    depth_tile = blocks.sample_tile(schedule, depth, [4, 0, 4] if is_split else [0, 4], 2 * _MOST_OWN)
    splits, steps, fragments = schedule.split(depth, [1] * (not is_split) + depth_tile)
    final = schedule.rfactor(splits, 0) if is_split else None
    if final is not None:
        block, final = final, block
    batch, *sides, splits, steps, fragments, short = schedule.get_loops(block)
    sizes: list[Any] = []  # threads along rows and along columns
    parts: list[tuple[Any, ...]] = []  # and loops of blocks, groups, threads and neighbours
    for loop, length in zip(sides, neighbours, strict=True):
        loop, neighbour = schedule.split(loop, [None, length])
        grid, size, groups = blocks.sample_tile(
            schedule, loop, [0, _THREADS, _MOST_OWN // length], _MOST_OWN // length
        )
        sizes.append(size)
        parts.append((*schedule.split(loop, [grid, groups, size]), neighbour))
    grids, groups, threads, own = zip(*parts, strict=True)
    schedule.reorder(batch, splits, *grids, *groups, *threads, steps, fragments, short, *own)
    schedule.bind(schedule.fuse(batch, splits, *grids), "blockIdx.x")
    blocks.bind(schedule, [*groups, *threads], "vthread.y", "vthread.x", "threadIdx.y", "threadIdx.x")

    sums = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(sums, threads[-1], preserve_unit_loops=True)
    for operand, length in zip(product.operands, neighbours, strict=True):
        copy = schedule.cache_read(block, operand.index, SHARED)
        schedule.compute_at(copy, steps, preserve_unit_loops=True)
        auto_inline_producers(schedule, copy)
        unit = blocks.VECTOR_BYTES // int(element_bytes(operand.dtype))
        read = min(unit, _SHORT if operand.is_depth_innermost else length)
        # If all accesses to a tile have the same width, TVM makes it a tile of vectors, and
        # its pass for asynchronous copies fails.
        width = operand.vector // 2 if has_copies and 1 < operand.vector == read else operand.vector
        elements = schedule.fuse(*schedule.get_loops(copy)[-2:])
        _, *place, vector = schedule.split(elements, [None, *sizes, width])
        blocks.bind(schedule, place, "threadIdx.y", "threadIdx.x")
        schedule.vectorize(vector)
        if operand.is_depth_innermost:  # threads read different rows without bank conflicts
            schedule.storage_align(copy, 0, axis=-2, factor=2 * unit, offset=unit)
    for operand, length in zip(product.operands, neighbours, strict=True):
        vector = _SHORT if operand.is_depth_innermost else length
        blocks.vector_read(schedule, block, operand.index, fragments, vector)
    for loop in (short, *own):
        schedule.unroll(loop)
    schedule.decompose_reduction(block, steps)
    if final is None:
        auto_inline_consumer_chain(schedule, sums)
    else:
        blocks.add_partial_sums(schedule, final, product.result)
    schedule.vectorize(schedule.get_loops(sums)[-1])
    schedule.annotate(steps, "software_pipeline_stage", [0, 0, stages - 1])
    schedule.annotate(steps, "software_pipeline_order", [0, 1, 2])
    if has_copies:
        schedule.annotate(steps, "software_pipeline_async_stages", [0])
    return blocks.describe(
        schedule,
        KIND,
        [
            "depth: splits steps fragments" if is_split else "depth: steps fragments",
            "rows: grid threads groups",
            "columns: grid threads groups",
        ],
        neighbours=neighbours,
        short=_SHORT,
        operands=[operand.dtype for operand in product.operands],
        sums=product.sums,
        result=product.result,
        depth_innermost=[operand.is_depth_innermost for operand in product.operands],
        vectors=[operand.vector for operand in product.operands],
        stages=stages,
    )
