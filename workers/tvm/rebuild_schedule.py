"""From sketch and decisions back to the exact schedule."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from tvm.error import InternalError
from tvm.s_tir.meta_schedule.postproc import RewriteReductionBlock, RewriteUnboundBlock, VerifyGPUCode
from tvm.s_tir.schedule import ScheduleError, Trace

from workers.tvm.allowed_programs import TraceRefused
from workers.tvm.cuda_rules import DYNAMIC, can_launch
from workers.tvm.parsed_program_cache import (
    TILES,
    design_contexts,
    instructions,
    is_choice,
    new_schedule,
    parse_tvm_target,
    tune_context,
)
from workers.tvm.repeated_sums import initialize_repeated_sums
from workers.tvm.sketches import plain

LATEST: Final = 64  # the schedules of a round: what was found valid is built next
ANSWERED: Final = 4096  # a searcher asks after the same defaults and ancestors round by round


def rebuild(tir: str, target: str, trace: str, decisions: Sequence[int]) -> Any | None:
    """The postprocessed schedule of a candidate, to look at only, or None where the candidate is invalid."""
    return _rebuild(tir, target, trace, tuple(decisions))


@lru_cache(maxsize=LATEST)
def _rebuild(tir: str, target: str, trace: str, decisions: tuple[int, ...]) -> Any | None:
    schedule = new_schedule(tir)
    try:
        insts = instructions(tir, trace)
        Trace(insts, bind(insts, decisions)).apply_to_schedule(schedule, remove_postproc=False)
        schedule.enter_postproc()
        accepted = _postprocess(schedule, tir, target, insts)
    except (ScheduleError, InternalError, TraceRefused):  # TVM's checks trip over some combinations
        return None
    return schedule if accepted else None


def _postprocess(schedule: Any, tir: str, target: str, insts: Sequence[Any]) -> bool:
    """Apply MetaSchedule's postprocessors; return whether they and the limits of a CUDA target allow it.

    MetaSchedule's check of CUDA kernels counts all shared memory alike, and refuses vectors that DLight uses.
    """
    parsed = parse_tvm_target(target)
    fixed = not any(map(is_choice, insts))
    lowers = parsed.kind.name == "cuda" and (fixed or any(DYNAMIC in inst.attrs for inst in insts))
    context = design_contexts(tir, target)[0] if lowers else tune_context(tir, target)
    skipped: tuple[type, ...] = (VerifyGPUCode,) if lowers and fixed else ()
    # MetaSchedule refuses a block that all threads of a kernel run, as DLight's epilogues of sums are.
    if skipped and any(inst.kind.name == "Bind" for inst in insts):
        skipped += (RewriteUnboundBlock,)
    for step in context.space_generator.postprocs:
        if isinstance(step, RewriteReductionBlock) and not initialize_repeated_sums(schedule):
            return False
        if not isinstance(step, skipped) and not step.apply(schedule):
            return False
    # Of these some do not lower, or have more static shared memory than a block may have. It takes longer to
    # find that out than everything else.
    is_odd = fixed or any(inst.kind.name == "ReadAt" or "shared" in inst.attrs for inst in insts)
    return not (lowers and is_odd) or can_launch(schedule.mod, parsed)


def bind(insts: Sequence[Any], decisions: Sequence[int]) -> dict[Any, Any]:
    """The decision of each sampling instruction, cut from the vector."""
    numbers = iter(decisions)
    bound: dict[Any, Any] = {}
    for inst in filter(is_choice, insts):
        is_tile = inst.kind.name in TILES
        bound[inst] = [next(numbers) for _ in range(int(inst.attrs[0]))] if is_tile else next(numbers)
    if next(numbers, None) is not None:
        raise ValueError("more decisions than the sketch has choices")
    return bound


def validate(tir: str, target: str, candidates: Sequence[tuple[str, Sequence[int]]]) -> list[bool]:
    """Whether each candidate, a sketch's trace and decisions, can be rebuilt."""
    return [_valid(tir, target, trace, tuple(decisions)) for trace, decisions in candidates]


@lru_cache(maxsize=ANSWERED)
def _valid(tir: str, target: str, trace: str, decisions: tuple[int, ...]) -> bool:
    return _rebuild(tir, target, trace, decisions) is not None


def full_trace(tir: str, target: str, trace: str, decisions: Sequence[int]) -> str | None:
    """The trace with decisions and postprocessing, as JSON for a tuning record; None if invalid."""
    schedule = rebuild(tir, target, trace, decisions)
    return None if schedule is None else json.dumps(plain(schedule.trace.as_json()), separators=(",", ":"))
