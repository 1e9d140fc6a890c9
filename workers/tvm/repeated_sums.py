"""Initialize sums that a schedule computes again in each iteration of a loop.

MetaSchedule's RewriteReductionBlock initializes a sum before the first loop that iterates over terms of any
sum. If RandomComputeLocation put a sum into the loop over the terms of its consumer, each iteration of that
loop adds all terms to the last result. This is a fault of TVM 0.27.
"""

from typing import Any

from tvm.s_tir import SBlockRealize
from tvm.tirx import For, IterVar

from graphc.core.graph_rewriting import collect
from workers.tvm.program_blocks import Names, variables


def initialize_repeated_sums(schedule: Any) -> bool:
    """Initialize inside its repeating loops each sum that RewriteReductionBlock would initialize outside.

    Return False if such a sum has no loop over its own terms: nothing can initialize it there.
    """
    realized = collect(schedule.mod["main"], SBlockRealize)
    terms = [_variables_of_terms(each) for each in realized]
    all_terms = frozenset().union(*terms)
    for realize, own_terms in zip(realized, terms, strict=True):
        loops = [] if realize.block.init is None else _loops_around(schedule, realize.block)
        names = [hash(loop.loop_var) for loop in loops]
        outer = next((at for at, name in enumerate(names) if name in all_terms), len(loops))
        own = next((at for at, name in enumerate(names) if name in own_terms), len(loops))
        used = variables(*realize.iter_values)
        repeats = any(
            name not in used and int(loop.extent) > 1
            for name, loop in zip(names[outer:own], loops[outer:own], strict=True)
        )
        # TVM leaves a sum that threads add up together to a later pass.
        if not repeats or any(loop.thread_binding is not None for loop in loops[own:]):
            continue
        if own == len(loops):
            return False
        block = schedule.get_sblock(realize.block.name_hint)
        schedule.decompose_reduction(block, schedule.get_loops(block)[own])
    return True


def _variables_of_terms(realize: Any) -> Names:
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return variables(*(value for axis, value in axes if axis.iter_type == IterVar.CommReduce))


def _loops_around(schedule: Any, block: Any) -> list[Any]:
    """Return the loops around a block from the outermost, without adding a step to the schedule's trace."""
    loops: list[Any] = []
    around = schedule.get_sref(block).parent
    while around is not None and isinstance(around.stmt, For):
        loops.insert(0, around.stmt)
        around = around.parent
    return loops
