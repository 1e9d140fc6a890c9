"""Mark reductions along rows, over leading axes and of windows for vectorisation.

TVM's rules only vectorise results, and only without an inner loop over terms. This rule
vectorises what is contiguous: terms of a row, or neighbouring results. If results are few, it
splits the terms among the cores.
"""

from math import prod
from typing import Any

import tvm
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar, Mul, Var

from graphc.core.graph_pass import Leave, TensorFunctionPass
from graphc.core.graph_rewriting import (
    RULE,
    SUGGESTS,
    WIDEST,
    WIDTH,
    collect,
    extent_of,
    largest_factor,
    marked,
    split_in_two,
)

FOLD = "mallorn_fold"
VECTORS = 4  # vectors of a register tile: enough that sums do not wait for each other


class MarkReductions(TensorFunctionPass[list[Any]]):
    """Selects a vectorising schedule rule for reductions that sum no products."""

    name, rules = "tasks.mark_reductions", (FOLD,)

    def check(self, function: Any) -> list[Any]:
        blocks = collect(function.body, SBlock)
        reducing = [block for block in blocks if any(map(_is_reduction, block.iter_vars))]
        if not reducing:
            raise Leave("it reduces nothing")
        stored = [store.value for block in reducing for store in collect(block.body, BufferStore)]
        if any(isinstance(value, tvm.tirx.Add) and isinstance(value.b, Mul) for value in stored):
            raise Leave("it sums products")
        fitting = [block for block in reducing if _fills(block, self.lanes)]
        if not fitting:
            raise Leave("no axis of it can be cut in vectors")
        if all(block.annotations.get(RULE) == FOLD for block in fitting):
            raise Leave("it names the rule already")
        return fitting

    def rewrite(self, function: Any, facts: list[Any]) -> Any:
        return marked(function, facts, FOLD, self.lanes)


def beside(block: Any) -> int:
    """Return the axis along which reads are contiguous, preferably one of results."""
    written = {hash(region.source) for region in block.writes}
    loads = [load for load in collect(block.body, TensorLoad) if hash(load.source) not in written]
    names = {hash(var) for load in loads[:1] for var in collect(load.indices[-1], Var)}
    axes = [at for at, axis in enumerate(block.iter_vars) if hash(axis.var) in names]
    return axes[0] if axes else len(block.iter_vars) - 1


def _fills(block: Any, lanes: int) -> bool:
    """Return whether that axis splits into half vectors; TVM is better at prime lengths."""
    size = int(block.iter_vars[beside(block)].dom.extent)
    return any(size % factor == 0 for factor in range(max(2, lanes // 2), VECTORS * lanes + 1))


def _is_reduction(axis: Any) -> bool:
    return bool(axis.iter_type == IterVar.CommReduce)


UNLIMITED = -1  # zero would make TVM draw for ever
# Parts of the terms for the cores; results that are too few; terms that are worth splitting.
PARTS, FEW, MANY = 16, 64, 1 << 14


def fold(schedule: Any, block: Any) -> list[Any]:
    """Split the terms in parts if results are few, then vectorise terms or results."""
    width = VECTORS * int(schedule.get(block).annotations[WIDTH])
    # The outer loops are over results, the inner ones over terms.
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
    """Return the new block that sums each part; `block` then sums up the parts."""
    terms = schedule.get_loops(block)[results]
    parts = largest_factor(extent_of(schedule, terms), PARTS)
    factors = schedule.sample_perfect_tile(terms, 2, UNLIMITED, [parts, extent_of(schedule, terms) // parts])
    outer, _ = schedule.split(terms, factors)
    return schedule.rfactor(outer, 0)


def _across(schedule: Any, block: Any, results: int, at: int, width: int) -> None:
    """Vectorise over results."""
    loops = schedule.get_loops(block)
    around, terms = loops[:results], loops[results:]
    outer, inner = split_in_two(schedule, around.pop(at), WIDEST, width)
    schedule.reorder(*around, outer, *terms, inner)
    if len(schedule.get(block).writes) == 1:
        sums = schedule.cache_write(block, 0, "global")
        schedule.reverse_compute_at(sums, outer)


def _along(schedule: Any, block: Any, results: int, at: int, width: int) -> None:
    """Vectorise over terms; each result's vector is summed up at the end."""
    terms = schedule.get_loops(block)[results:]
    outer, inner = split_in_two(schedule, terms.pop(at - results), WIDEST, width)
    schedule.reorder(*terms, outer, inner)
    lanes = schedule.rfactor(inner, results)
    if results:
        schedule.compute_at(lanes, schedule.get_loops(block)[results - 1], preserve_unit_loops=True)
        inner, *others = schedule.get_loops(lanes)[results:]
        schedule.reorder(*others, inner)


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{FOLD}", fold, override=True)
