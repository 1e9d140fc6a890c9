"""The schedule rule of element-wise functions: rows for the cores, and vectors that end where a row does."""

from typing import Any

import tvm

from graphc.core.graph_rewriting import WIDTH, inline_all_but
from graphc.tasks.mark_elementwise_rows import LINE


def line(schedule: Any, block: Any) -> list[Any]:
    """All in one loop over parts of rows. Nothing is left to choose."""
    width = int(schedule.get(block).annotations[WIDTH])
    schedule = inline_all_but(schedule, [block])
    *outer, row = schedule.get_loops(block)
    parts, inner = schedule.split(row, [None, width])
    every = schedule.fuse(*outer, parts)
    for loop in (every, inner):
        schedule.annotate(loop, LINE, 1)  # or TVM cuts them anew
    schedule.parallel(every)
    schedule.vectorize(inner)
    return [schedule]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{LINE}", line, override=True)
