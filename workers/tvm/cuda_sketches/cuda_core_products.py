"""Products, batched products and convolutions on CUDA cores, for types without tensor cores.

Each thread computes a tile of rows and columns in registers. The depth is walked in steps, whose
tiles of both operands are copied to shared memory while earlier tiles are multiplied. Columns of a
thread are groups of neighbours, so that a warp's reads of shared memory are consecutive vectors. A
product with few tiles is split along its depth: partial sums go to memory, and a second kernel
adds them.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import gcd
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain, auto_inline_producers

from mallorn.core.values.machine import element_bytes
from mallorn.workers.tvm.cuda_sketches.blocks import GRID, REFUSED, VECTOR_BYTES, bind, describe, vector_read
from mallorn.workers.tvm.cuda_sketches.normalized_product import Product, normalize
from mallorn.workers.tvm.cuda_sketches.tensor_core_products import add_partial_sums

KIND: Final = "cuda core product"
_TENSOR_CORE_TYPES: Final = ("float16", "bfloat16", "int8", "uint8")
_SHARED: Final = "shared.dyn"
_MOST_THREADS: Final = 32  # along rows or columns
_MOST_STEPS: Final = 8  # vectors of the depth in one shared tile
_SHORT: Final = 4  # terms that a thread multiplies between two steps of its innermost loop


@dataclass(frozen=True, slots=True)
class Variant:
    """What a sketch fixes, because a trace cannot leave it open."""

    rows: int  # of a thread
    columns: int
    stages: int
    is_split: bool = False


VARIANTS: Final = (
    Variant(8, 8, 3),
    Variant(8, 8, 2),
    Variant(8, 4, 3),
    Variant(4, 4, 3),
    Variant(4, 4, 3, is_split=True),
)


def schedules(module: Any, target: Any) -> Iterator[Any]:
    """Yield schedules on CUDA cores, with open choices, if the program is such a product."""
    for variant in VARIANTS:
        with suppress(*REFUSED):
            multiples = [
                tuple(side * n for n in (1, 2, 4, 8, 16)) for side in (variant.rows, variant.columns)
            ]
            product = normalize(module, (*multiples, (_SHORT, 8, 16)))
            if product is None or product.operands[0].dtype in _TENSOR_CORE_TYPES:
                return
            yield _apply(product, variant)


def _apply(product: Product, variant: Variant) -> Any:
    schedule, block = product.schedule, product.block
    depth, short = schedule.split(schedule.get_loops(block)[-1], [None, _SHORT])
    depth_tile = _sample(schedule, depth, [4, 1] if variant.is_split else [1], _MOST_STEPS)
    splits, steps, fragments = schedule.split(depth, depth_tile if variant.is_split else [1, *depth_tile])
    final = schedule.rfactor(splits, 0) if variant.is_split else None
    if final is not None:
        block, final = final, block
    batch, rows, columns, splits, steps, fragments, short = schedule.get_loops(block)
    rows, row = schedule.split(rows, [None, variant.rows])
    columns, column = schedule.split(columns, [None, variant.columns])
    row_tile, tile = (_sample(schedule, loop, [1], _MOST_THREADS, 16) for loop in (rows, columns))
    grid_rows, row_thread = schedule.split(rows, row_tile)
    grid_columns, thread = schedule.split(columns, tile)
    schedule.reorder(
        *(batch, splits, grid_rows, grid_columns, row_thread, thread, steps, fragments, short, row, column)
    )
    bind(schedule, [schedule.fuse(batch, splits), schedule.fuse(grid_rows, grid_columns)], *GRID)
    bind(schedule, [row_thread, thread], "threadIdx.y", "threadIdx.x")
    sums = schedule.cache_write(block, 0, "local")
    schedule.reverse_compute_at(sums, thread, preserve_unit_loops=True)
    for index, operand in enumerate(product.operands):
        shared = schedule.cache_read(block, index, _SHARED)
        schedule.compute_at(shared, steps, preserve_unit_loops=True)
        auto_inline_producers(schedule, shared)
        copy = schedule.fuse(*schedule.get_loops(shared)[-2:])
        _, y, x, vector = schedule.split(copy, [None, row_tile[1], tile[1], operand.vector])
        bind(schedule, [y, x], "threadIdx.y", "threadIdx.x")
        schedule.vectorize(vector)
        unit = VECTOR_BYTES // int(element_bytes(operand.dtype))
        if operand.is_depth_innermost:
            schedule.storage_align(shared, 0, axis=-2, factor=2 * unit, offset=unit)
    for index, operand in enumerate(product.operands):
        vector_read(schedule, block, index, fragments, max(_SHORT, variant.rows, variant.columns))
    for loop in (short, row, column):
        schedule.unroll(loop)
    schedule.decompose_reduction(block, steps)
    if final is None:
        auto_inline_consumer_chain(schedule, sums)
    else:
        add_partial_sums(schedule, final, product.result)
    schedule.annotate(steps, "software_pipeline_stage", [0, 0, variant.stages - 1])
    schedule.annotate(steps, "software_pipeline_order", [0, 1, 2])
    schedule.annotate(steps, "software_pipeline_async_stages", [0])
    choices = ["depth: splits steps fragments" if variant.is_split else "depth: steps fragments"]
    facts = {
        "thread": [variant.rows, variant.columns, _SHORT],
        "operands": product.operands[0].dtype,
        "result": product.result,
        "vectors": [operand.vector for operand in product.operands],
        "stages": variant.stages,
    }
    return describe(schedule, KIND, [*choices, "rows: grid threads", "columns: grid threads"], **facts)


def _sample(schedule: Any, loop: Any, outer: list[int], most: int, wanted: int = 4) -> list[Any]:
    """Sample factors of a loop. The schedule is built with `wanted` as the innermost factor, if it divides."""
    extent = int(schedule.get(loop).extent)
    inner = gcd(extent, wanted)
    first = gcd(extent // inner, outer[0])
    decision = [first, extent // inner // first, inner] if len(outer) > 1 else [extent // inner, inner]
    tile: list[Any] = schedule.sample_perfect_tile(loop, len(decision), most, decision)
    return tile
