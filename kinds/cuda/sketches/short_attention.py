"""Attention of few keys on tensor cores: one kernel for both products and the softmax between them.

A thread block computes a tile of the queries of one head, with all keys. Scores pass through
shared memory, from where a warp reads whole rows: it finds their maxima and sums by shuffles, and
stores weights in 16 bits, which the second product reads. Keys and values are copied to shared
memory asynchronously in steps. The program is `kinds/cuda/graph/fuse_short_attention.py`'s.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain
from tvm.s_tir.tensor_intrin.cuda import get_mma_intrin_group

from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import OPERATOR
from mallorn.kinds.cuda.compute_capability import AMPERE, WARP_SIZE, capability
from mallorn.kinds.cuda.graph.tensor_core_instructions import FILL, own_name
from mallorn.kinds.cuda.sketches import blocks
from mallorn.kinds.cuda.sketches.tensor_core_products import (
    HALVES,
    MOST_FRAGMENTS,
    SHARED,
    SIDE,
    copy_by_warps,
    multiply_fragments,
    pad_rows,
    pipeline,
)

KIND: Final = "short attention"
_STAGES: Final = (2, 3)
#: Which of the program's blocks reduce: scores, maximum, total, and the second product.
_REDUCING: Final = [False, False, True, False, True, False, True, False, False, True, False]


def schedules(module: Any, target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program is attention over few keys."""
    if capability(target.attrs["arch"]).number < AMPERE:
        return
    for stages in _STAGES:
        with suppress(*blocks.REFUSED, AssertionError):
            if (schedule := schedule_attention(module, stages)) is None:
                return
            yield schedule


def schedule_attention(module: Any, stages: int) -> Any | None:
    """Return the schedule; None for other programs."""
    schedule = blocks.open_schedule(module)
    parts = blocks.child_blocks(schedule)
    if [blocks.is_sum(schedule, stage) for stage in parts] != _REDUCING:
        return None
    queries, keys, scores, logits, top, powers, total, weights, values, sums, _ = parts
    if OPERATOR not in schedule.get(sums).annotations:
        return None
    dtype = str(schedule.get(queries).writes[0].source.dtype)
    vector = blocks.VECTOR_BYTES // int(element_bytes(dtype))

    def by_lanes(batch: Any, row: Any, key: Any) -> tuple[Any, ...]:
        return batch, row, key // WARP_SIZE, key % WARP_SIZE

    for block in (logits, top, powers, total, weights):
        schedule.transform_block_layout(block, by_lanes)
    for block in (logits, top, powers, total):
        schedule.set_scope(block, 0, "local")
    for block in (logits, powers):
        schedule.transform_layout(block, ("write", 0), by_lanes)
    for block in (queries, keys, weights, values):
        schedule.set_scope(block, 0, SHARED)
        pad_rows(schedule, block, dtype)

    # The second product: a block's rows, its warps, and the fragments of a warp.
    sums, rows, columns, depth = _fragment_loops(schedule, sums)
    row_tile = blocks.sample_tile(schedule, rows, [0, 1, 2], MOST_FRAGMENTS)
    column_tile = blocks.sample_tile(schedule, columns, [2, 0], MOST_FRAGMENTS)
    warps = (row_tile[1], column_tile[0])
    grid, *of_rows = schedule.split(rows, row_tile)
    steps, fragments = schedule.split(depth, blocks.sample_tile(schedule, depth, [0, 4], MOST_FRAGMENTS))
    of_columns = schedule.split(columns, column_tile)
    batch = schedule.get_loops(sums)[0]
    pairs = list(zip(of_rows, of_columns, strict=True))  # warps, and fragments of a warp
    schedule.reorder(batch, grid, *pairs[0], steps, fragments, *pairs[1])
    block = schedule.fuse(batch, grid)
    blocks.bind(schedule, [block, *pairs[0]], "blockIdx.x", "threadIdx.y", "threadIdx.z")
    result = schedule.cache_write(sums, 0, SHARED)
    store = schedule.cache_write(sums, 0, "warp")
    for copy in (store, result):
        schedule.reverse_compute_at(copy, pairs[0][1], preserve_unit_loops=True)
    schedule.compute_at(values, steps, preserve_unit_loops=True)
    copy_by_warps(schedule, values, warps, vector)
    schedule.compute_at(weights, block, preserve_unit_loops=True)
    instructions = _instructions(dtype, is_depth_innermost=False)
    multiply_fragments(schedule, sums, store, (steps, fragments), (HALVES, HALVES), instructions)
    pipeline(schedule, steps, 1, stages)
    elements = schedule.fuse(*schedule.get_loops(result)[-2:])
    _, lanes, lane = schedule.split(elements, [None, WARP_SIZE, blocks.VECTOR_BYTES // 4])
    schedule.bind(lanes, "threadIdx.x")
    schedule.vectorize(lane)

    # The softmax: a warp computes some rows at a time. All that one thread holds of a row is in
    # registers. The loop over groups of rows keeps scores alive while weights are written: else
    # TVM would store weights in their place, where `ldmatrix` refuses memory of another type.
    *_, rows, step, lanes = schedule.get_loops(weights)
    y, z, group, row = schedule.split(rows, [*warps, None, blocks.sample(schedule, 1, 2, 4)])
    schedule.reorder(y, z, group, row, step, lanes)
    blocks.bind(schedule, [y, z, lanes], "threadIdx.y", "threadIdx.z", "threadIdx.x")
    for part in (total, powers, top, logits):
        schedule.compute_at(part, group, preserve_unit_loops=True)
        schedule.bind(schedule.get_loops(part)[-1], "threadIdx.x")

    # The first product, with the same warps.
    schedule.compute_at(scores, block, preserve_unit_loops=True)
    scores, rows, columns, depth = _fragment_loops(schedule, scores)
    steps, fragments = schedule.split(depth, blocks.sample_tile(schedule, depth, [0, 4], MOST_FRAGMENTS))
    of_rows, of_columns = schedule.split(rows, [warps[0], None]), schedule.split(columns, [warps[1], None])
    pairs = list(zip(of_rows, of_columns, strict=True))
    schedule.reorder(*pairs[0], steps, fragments, *pairs[1])
    blocks.bind(schedule, pairs[0], "threadIdx.y", "threadIdx.z")
    schedule.set_scope(scores, 0, SHARED)
    store = schedule.cache_write(scores, 0, "warp")
    schedule.reverse_compute_at(store, pairs[0][1], preserve_unit_loops=True)
    for copy in (queries, keys):
        schedule.compute_at(copy, steps, preserve_unit_loops=True)
        copy_by_warps(schedule, copy, warps, vector)
    instructions = _instructions(dtype, is_depth_innermost=True)
    multiply_fragments(schedule, scores, store, (steps, fragments), (HALVES, HALVES), instructions)
    pipeline(schedule, steps, 2, stages)
    # This comes last, since TVM cannot bound what a result without padded rows reads.
    auto_inline_consumer_chain(schedule, result)
    return blocks.describe(
        schedule,
        KIND,
        [
            "rows: grid warps fragments",
            "width: warps fragments",
            "keys: steps fragments",
            "rows at a time",
            "depth: steps fragments",
        ],
        operands=dtype,
        stages=stages,
    )


def _fragment_loops(schedule: Any, block: Any) -> tuple[Any, Any, Any, Any]:
    """Tile a product by fragments. Return its block, and the loops over rows, columns and depth."""
    pairs = [schedule.split(loop, [None, SIDE]) for loop in schedule.get_loops(block)[-3:]]
    outer, inner = zip(*pairs, strict=True)
    schedule.reorder(*outer, *inner)
    return schedule.blockize(inner[0]), *outer


def _instructions(dtype: str, *, is_depth_innermost: bool) -> dict[str, str]:
    """Return the names of instructions; the sum runs along rows of the right operand or not."""
    names = get_mma_intrin_group(SHARED, SHARED, "float16", "float32", False, is_depth_innermost)
    return {step: own_name(name, dtype) for step, name in names.items()} | {"init": FILL}
