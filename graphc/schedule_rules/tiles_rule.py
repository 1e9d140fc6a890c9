"""The schedule rule of products by tiles: columns of weights for the cores, and rows that read them in turn.

What follows a product is computed on two by two tiles of its sums, while they are near.
"""

from typing import Any

import tvm

from graphc.core.graph_rewriting import SUGGESTS, inline_all_but
from graphc.quant.tile_instructions import RULE

MAX_ROWS = 1 << 20  # blocks of rows that read the same columns before others are read


def tiles(schedule: Any, block: Any) -> list[Any]:
    """Parts of the rows, columns, rows: all of them are shared by the cores."""
    schedule = inline_all_but(schedule, [block])
    followers = schedule.get_consumers(block)
    *rows, columns = schedule.get_loops(block)
    every = schedule.fuse(*rows)
    extent = int(schedule.get(every).extent)
    parts, rows = schedule.split(every, schedule.sample_perfect_tile(every, 2, MAX_ROWS, [1, extent]))
    schedule.reorder(parts, columns, rows)
    last = followers[0] if followers else schedule.cache_write(block, 0, "global")
    schedule.reverse_compute_at(last, rows, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(last)[-1])
    schedule.parallel(schedule.fuse(parts, columns, rows))
    for loop in schedule.get_loops(block):
        schedule.annotate(loop, RULE, 1)  # or TVM cuts them anew
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{RULE}", tiles, override=True)
