"""Rebuild the exact schedule of a candidate from its sketch and decisions."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from tvm.error import InternalError
from tvm.s_tir import SBlockRealize
from tvm.s_tir.meta_schedule.postproc import RewriteReductionBlock, RewriteUnboundBlock, VerifyGPUCode
from tvm.s_tir.schedule import ScheduleError, Trace
from tvm.tirx import BufferStore, For, ForKind, IterVar, Max, Min, Select

from mallorn.core.values.candidate import SKETCH_FACTS
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.tvm.programs.allowed_programs import TraceRefused
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.parsed_program_cache import (
    TILES,
    design_contexts,
    instructions,
    is_choice,
    new_schedule,
    parse_tvm_target,
    tune_context,
)
from mallorn.workers.tvm.programs.program_blocks import variables
from mallorn.workers.tvm.space.sketches import to_plain_value

LATEST: Final = 64  # cached schedules, enough for a round: valid candidates are built next
UNROLL: Final = "pragma_auto_unroll_max_step"
MOST_IN_A_ROW: Final = 16
ANSWERED: Final = 4096  # cached validity: searchers check the same candidates in every round


def rebuild(tir: str, target: str, trace: str, decisions: Sequence[int]) -> Any | None:
    """Return a candidate's schedule after postprocessing, or None if it is invalid. Do not
    modify it, since it is cached and shared."""
    return _rebuild(tir, target, trace, tuple(decisions))


@lru_cache(maxsize=LATEST)
def _rebuild(tir: str, target: str, trace: str, decisions: tuple[int, ...]) -> Any | None:
    schedule = new_schedule(tir)
    try:
        insts = instructions(tir, trace)
        bound_trace = Trace(insts, map_choices_to_decisions(insts, decisions))
        bound_trace.apply_to_schedule(schedule, remove_postproc=False)
        schedule.enter_postproc()
        if SKETCH_FACTS in trace:  # our own kinds leave nothing to MetaSchedule's postprocessing
            can_run = compiler_kind(target).can_run(schedule.mod, parse_tvm_target(target))
            return schedule if can_run else None
        is_valid = _postprocess(schedule, tir, target, insts)
    except (ScheduleError, InternalError, TraceRefused):  # TVM's checks fail on some decisions
        return None
    return schedule if is_valid else None


def _postprocess(schedule: Any, tir: str, target: str, insts: Sequence[Any]) -> bool:
    """Apply MetaSchedule's postprocessors, and return whether the schedule is valid. The kind of
    hardware checks kernels, because MetaSchedule's own check treats static and dynamic
    shared memory alike and refuses vectors that DLight uses."""
    tvm_target, kind = parse_tvm_target(target), compiler_kind(target)
    is_fixed = not any(map(is_choice, insts))
    opts_in = kind.opts_in(insts, is_fixed)
    context = design_contexts(tir, target)[0] if opts_in else tune_context(tir, target)
    omitted: tuple[type, ...] = (VerifyGPUCode,) if opts_in and is_fixed else ()
    # MetaSchedule refuses blocks that all threads of a kernel run, such as DLight's epilogues.
    if omitted and any(inst.kind.name == "Bind" for inst in insts):
        omitted += (RewriteUnboundBlock,)
    for step in context.space_generator.postprocs:
        if isinstance(step, RewriteReductionBlock) and not initialize_repeated_sums(schedule):
            return False
        if not isinstance(step, omitted) and not step.apply(schedule):
            return False
    if kind.limits_extrema and has_long_extremum(schedule):
        return False
    return not kind.needs_check(insts, opts_in) or kind.can_run(schedule.mod, tvm_target)


def initialize_repeated_sums(schedule: Any) -> bool:
    """Move the initialization of each sum that an outer loop repeats into that loop. Return
    False if this is impossible, because a sum has no loop of its own.

    RewriteReductionBlock of TVM 0.27 initializes a sum before the first loop over terms of
    any sum. If that loop is the consumer's, each iteration would add all terms to the
    previous result.
    """
    realizes = collect_nodes(schedule.mod["main"], SBlockRealize)
    terms = [_variables_of_terms(realize) for realize in realizes]
    for realize, own_terms in zip(realizes, terms, strict=True):
        loops = _loops_around(schedule, realize) if realize.block.init is not None else []
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


def _variables_of_terms(realize: Any) -> frozenset[int]:
    """Return the variables that count the terms of a block's sum."""
    axes = zip(realize.block.iter_vars, realize.iter_values, strict=True)
    return variables(*(value for axis, value in axes if axis.iter_type == IterVar.CommReduce))


def _loops_around(schedule: Any, realize: Any) -> list[Any]:
    """Return a block's loops, outer ones first. `get_loops` would add a step to the trace."""
    loops, parent = list[Any](), schedule.get_sref(realize.block).parent
    while parent is not None and isinstance(parent.stmt, For):
        loops.insert(0, parent.stmt)
        parent = parent.parent
    return loops


def has_long_extremum(schedule: Any) -> bool:
    """Return whether unrolled loops compute many maxima or minima in a row, with which an
    outer loop goes on: LLVM's time grows exponentially with their number."""
    for realize in collect_nodes(schedule.mod["main"], SBlockRealize):
        terms = _variables_of_terms(realize)
        stores = collect_nodes(realize.block.body, BufferStore)
        if not terms or not any(isinstance(store.value, Max | Min | Select) for store in stores):
            continue
        loops = _loops_around(schedule, realize)
        limit = max((int(loop.annotations.get(UNROLL, 0)) for loop in loops), default=0)
        steps, extents = 1, [1, 1]  # of loops over terms: the unrolled ones, and those around them
        for loop in (each for each in reversed(loops) if each.kind != ForKind.VECTORIZED):
            steps *= int(loop.extent)
            if hash(loop.loop_var) in terms:
                extents[steps > limit] *= int(loop.extent)
        if extents[0] > MOST_IN_A_ROW and extents[1] > 1:
            return True
    return False


def map_choices_to_decisions(insts: Sequence[Any], decisions: Sequence[int]) -> dict[Any, Any]:
    """Map sampling instructions to their decisions. Raises ValueError if some are left."""
    numbers = iter(decisions)
    bound: dict[Any, Any] = {}
    for inst in filter(is_choice, insts):
        is_tile = inst.kind.name in TILES
        bound[inst] = [next(numbers) for _ in range(int(inst.attrs[0]))] if is_tile else next(numbers)
    if next(numbers, None) is not None:
        raise ValueError("more decisions than the sketch has choices")
    return bound


def validate(tir: str, target: str, candidates: Sequence[tuple[str, Sequence[int]]]) -> list[bool]:
    return [_is_valid(tir, target, trace, tuple(decisions)) for trace, decisions in candidates]


@lru_cache(maxsize=ANSWERED)
def _is_valid(tir: str, target: str, trace: str, decisions: tuple[int, ...]) -> bool:
    return _rebuild(tir, target, trace, decisions) is not None


def full_trace(tir: str, target: str, trace: str, decisions: Sequence[int]) -> str | None:
    schedule = rebuild(tir, target, trace, decisions)
    if schedule is None:
        return None
    return json.dumps(to_plain_value(schedule.trace.as_json()), separators=(",", ":"))
