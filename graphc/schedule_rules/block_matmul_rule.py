"""The schedule rule of products with weights in blocks: columns for the cores, tiles of rows for each block.

A core reads its weights from the first to the last, once for all rows of a tile.
"""

from math import prod
from typing import Any

import tvm

from graphc.core.graph_rewriting import SUGGESTS, extent_of, inline_all_but, split_in_two
from graphc.quant.block_quantized_matmul_function import RULE

MAX_ROWS, ROWS = 16, 8  # of a tile
MAX_CHUNKS, CHUNKS = 1 << 20, 16  # vectors of columns in a core's part
PARTS = 16  # of the columns at least, so that all cores have some
SHARED = 1 << 10  # blocks of inputs, above which the cores share them, too


def blocks(schedule: Any, block: Any) -> list[Any]:
    """Parts of the columns, tiles of rows, vectors of columns, blocks, rows."""
    (split,) = (each for each in schedule.get_producers(block))
    schedule = inline_all_but(schedule, [split, block])
    _split(schedule, split)
    followers = schedule.get_consumers(block)
    *others, rows, columns, every = schedule.get_loops(block)
    chunks = max(1, min(CHUNKS, extent_of(schedule, columns) // PARTS))
    parts, vectors = split_in_two(schedule, columns, MAX_CHUNKS, chunks)
    tiles, rows = split_in_two(schedule, rows, MAX_ROWS, ROWS)
    schedule.reorder(parts, *others, tiles, vectors, every, rows)
    last = followers[0] if followers else schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(last, vectors, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(last)[-1])
    schedule.parallel(parts)
    schedule.unroll(rows)
    for loop in schedule.get_loops(block):
        schedule.annotate(loop, RULE, 1)  # or TVM cuts them anew
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


def _split(schedule: Any, block: Any) -> None:
    loops = schedule.get_loops(block)
    if prod(extent_of(schedule, loop) for loop in loops) >= SHARED and len(loops) > 1:
        schedule.parallel(schedule.fuse(*loops[:-1]))
    for loop in schedule.get_loops(block):
        schedule.annotate(loop, RULE, 1)


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{RULE}", blocks, override=True)
