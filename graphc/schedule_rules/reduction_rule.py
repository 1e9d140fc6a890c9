"""The schedule rule of reductions that are no products: sums, means, extremes, places of extremes, pools.

TVM's own rules make vectors of results alone, and only where no loop over terms is inside. Here what lies
side by side in memory fills vectors: terms of a row, or results beside each other. Where results are few,
the terms are cut in parts for the cores.
"""

from math import prod
from typing import Any

import tvm
from tvm.tirx import IterVar

from graphc.core.graph_rewriting import SUGGESTS, WIDEST, WIDTH, extent_of, largest_factor, split_in_two
from graphc.tasks.mark_reductions import FOLD, VECTORS, beside

UNLIMITED = -1  # zero makes TVM draw for ever
# Of terms, for the cores; results that are too few; terms worth cutting.
PARTS, FEW, MANY = 16, 64, 1 << 14


def fold(schedule: Any, block: Any) -> list[Any]:
    """Terms in parts where results are few, then vectors of terms or of results."""
    width = VECTORS * int(schedule.get(block).annotations[WIDTH])
    # So many of the loops are around results; those of terms are inside.
    results = sum(axis.iter_type == IterVar.DataPar for axis in schedule.get(block).iter_vars)
    at = beside(schedule.get(block))
    extents = [extent_of(schedule, loop) for loop in schedule.get_loops(block)]
    summed = block
    if prod(extents[:results]) < FEW * width and prod(extents[results:]) >= MANY:
        summed = _parts(schedule, block, results)
        results, at = results + 1, at + (at >= results)
    (_across if at < results else _along)(schedule, summed, results, at, width)
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


def _parts(schedule: Any, block: Any, results: int) -> Any:
    """The block that sums each part; the given one is left to sum up the parts."""
    terms = schedule.get_loops(block)[results]
    parts = largest_factor(extent_of(schedule, terms), PARTS)
    factors = schedule.sample_perfect_tile(terms, 2, UNLIMITED, [parts, extent_of(schedule, terms) // parts])
    outer, _ = schedule.split(terms, factors)
    return schedule.rfactor(outer, 0)


def _across(schedule: Any, block: Any, results: int, at: int, width: int) -> None:
    """Vectors of results."""
    loops = schedule.get_loops(block)
    around, terms = loops[:results], loops[results:]
    outer, inner = split_in_two(schedule, around.pop(at), WIDEST, width)
    schedule.reorder(*around, outer, *terms, inner)
    if len(schedule.get(block).writes) == 1:
        sums = schedule.cache_write(block, 0, "global")
        schedule.reverse_compute_at(sums, outer)


def _along(schedule: Any, block: Any, results: int, at: int, width: int) -> None:
    """Vectors of terms, which are summed up once a result."""
    terms = schedule.get_loops(block)[results:]
    outer, inner = split_in_two(schedule, terms.pop(at - results), WIDEST, width)
    schedule.reorder(*terms, outer, inner)
    lanes = schedule.rfactor(inner, results)
    if results:
        schedule.compute_at(lanes, schedule.get_loops(block)[results - 1], preserve_unit_loops=True)
        inner, *others = schedule.get_loops(lanes)[results:]
        schedule.reorder(*others, inner)


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{FOLD}", fold, override=True)
