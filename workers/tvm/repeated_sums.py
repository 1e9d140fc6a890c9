"""Initialize sums that a schedule computes again in each iteration of a loop."""

from typing import Any

from tvm.s_tir import SBlockRealize
from tvm.tirx import For, IterVar

from graphc.core.graph_rewriting import collect
from workers.tvm.program_blocks import variables


def initialize_repeated_sums(schedule: Any) -> bool:
    """Initialize repeated sums inside the repeating loop; return False if one has no own loop.

    RewriteReductionBlock of TVM 0.27 initializes a sum before the first loop over terms of any
    sum. If that loop is the consumer's, each iteration would add all terms to the previous
    result.
    """
    realizes, terms = collect(schedule.mod["main"], SBlockRealize), []
    for realize in realizes:
        axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
        terms.append(variables(*(value for axis, value in axes if axis.iter_type == IterVar.CommReduce)))
    for realize, own_terms in zip(realizes, terms, strict=True):
        # `get_loops` would add a step to the schedule's trace.
        loops: list[Any] = []
        parent = schedule.get_sref(realize.block).parent if realize.block.init is not None else None
        while parent is not None and isinstance(parent.stmt, For):
            loops.insert(0, parent.stmt)
            parent = parent.parent
        names = [hash(loop.loop_var) for loop in loops]
        start, own = (
            next((index for index, name in enumerate(names) if name in loop_vars), len(loops))
            for loop_vars in (frozenset().union(*terms), own_terms)
        )
        bound = variables(*realize.iter_values)
        repeats = (int(loop.extent) > 1 and hash(loop.loop_var) not in bound for loop in loops[start:own])
        # A sum that several threads compute together is initialized by a later pass of TVM.
        if any(loop.thread_binding is not None for loop in loops[own:]) or not any(repeats):
            continue
        if own == len(loops):
            return False
        block = schedule.get_sblock(realize.block.name_hint)
        schedule.decompose_reduction(block, schedule.get_loops(block)[own])
    return True
