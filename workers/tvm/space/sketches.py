"""Generate a program's sketches: MetaSchedule's traces with all decisions left open."""

import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir.meta_schedule.schedule_rule import AutoInline, PyScheduleRule, RandomComputeLocation
from tvm.s_tir.schedule import ScheduleError, Trace
from tvm.tirx import FloatImm, IntImm, IterVar

from mallorn.core.errors import Unschedulable
from mallorn.graphc.core.graph_rewriting import SUGGESTS, inlines_too_much
from mallorn.searchers.space import Choice, ChoiceKind, Sketch
from mallorn.workers.subprocesses.errors import MESSAGE_LIMIT
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.parsed_program_cache import (
    design_contexts,
    instructions,
    is_choice,
    new_schedule,
    parse_module,
    parse_tvm_target,
    with_rules,
)
from mallorn.workers.tvm.programs.program_blocks import blocks_of

# CrossThreadReduction, for one, uses loops that tiling another sum has removed (IndexError).
_BROKEN_RULE = (IndexError, RuntimeError, TypeError, ValueError)
_FUSING = (AutoInline, RandomComputeLocation)
_SAMPLES = 12
_DEEPEST_LOCATION = 16
Samples = dict[str, list[list[Any]]]  # sampled decisions by the sketch's steps as JSON


@lru_cache(maxsize=64)
def design_space(tir: str, target: str) -> list[Sketch]:
    """Return a program's sketches in TVM's order. Raises Unschedulable without any."""
    try:
        traces = {trace_text(schedule.trace): schedule.trace for schedule in _schedules(tir, target)}
        if not traces:
            raise Unschedulable("TVM's rules fail, and no kind of sketch of ours fits the program")
        samples: Samples = {}
        return [
            Sketch(sketch_key(text), text, choices_of(tir, instructions(tir, text), trace, samples), ordinal)
            for ordinal, (text, trace) in enumerate(traces.items())
        ]
    except ScheduleError as error:
        # TVM appends long native backtraces; the beginning has the cause.
        raise Unschedulable(f"TVM finds no schedule for the program: {str(error)[:MESSAGE_LIMIT]}") from error


def _schedules(tir: str, target: str) -> Iterator[Any]:
    first, *further_contexts = design_contexts(tir, target)
    kind = compiler_kind(target)
    try:
        yield from _generate(first)
    except Unschedulable:
        if not kind.has_own_sketches:
            raise
    # These rules cannot fuse an epilogue of a sum, and MetaSchedule refuses a kernel for it.
    for context in further_contexts if blocks_of(parse_module(tir))[-1].reduced else ():
        try:
            for schedule in _generate(context):
                if kind.is_of_further_space(text := trace_text(schedule.trace)):
                    instructions(tir, text)
                    yield schedule
        except (ScheduleError, Unschedulable):
            continue  # the instruction does not fit the program's extents or accesses
    yield from kind.own_schedules(parse_module(tir), first.target, parse_tvm_target(target))


def _generate(context: Any) -> list[Any]:
    """Return the schedules that a context's rules generate. If a rule raises, it is left
    out. If inlining would make expressions too long, rules that inline or move blocks are
    left out. Raises ScheduleError; Unschedulable if leaving out one rule does not help."""
    rules = list(context.space_generator.sch_rules)
    if inlines_too_much(context.mod["main"]):
        remaining = [rule for rule in rules if not isinstance(rule, _FUSING)]
        return list(with_rules(context, remaining).generate_design_space())
    try:
        return list(context.generate_design_space())
    except ScheduleError:  # a tiling rule moves what follows a sum, but not what that reads
        return list(with_rules(context, [InlineIntoElementwise(), *rules]).generate_design_space())
    except _BROKEN_RULE as error:
        broken = error
    for rule in reversed(rules):  # the tiling rules come first and are left out last
        try:
            remaining = [item for item in rules if item is not rule]
            return list(with_rules(context, remaining).generate_design_space())
        except _BROKEN_RULE:
            continue
    raise Unschedulable(f"{type(broken).__name__}: {str(broken)[:MESSAGE_LIMIT]}") from broken


@derived_object
class InlineIntoElementwise(PyScheduleRule):  # type: ignore[misc]
    """Inlines elementwise blocks that only such blocks read; TVM's rule keeps choices."""

    def _initialize_with_tune_context(self, context: Any) -> None:
        """It needs nothing of the context."""

    def apply(self, schedule: Any, block: Any) -> list[Any]:
        with suppress(ScheduleError):  # the root has no readers, and some blocks cannot be inlined
            readers = schedule.get_consumers(block)
            axes = [axis for each in (block, *readers) for axis in schedule.get(each).iter_vars]
            if readers and all(axis.iter_type == IterVar.DataPar for axis in axes):
                schedule.compute_inline(block)
        return [schedule]

    def clone(self) -> Any:
        return InlineIntoElementwise()


def trace_text(trace: Any) -> str:
    """Return a trace's instructions as canonical JSON, without decisions."""
    return json.dumps(to_plain_value(trace.as_json()[0]), sort_keys=True, separators=(",", ":"))


def sketch_key(trace: str) -> str:
    """Return a sketch's key: a hash of its trace's text, equal in every process."""
    return hashlib.sha256(trace.encode()).hexdigest()[:16]


def to_plain_value(value: Any) -> Any:
    """Convert TVM's numbers, strings and nested arrays to plain values for JSON."""
    if isinstance(value, IntImm):
        return int(value)
    if isinstance(value, FloatImm):
        return float(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return [to_plain_value(item) for item in value]


def choices_of(tir: str, insts: Sequence[Any], trace: Any, samples: Samples) -> tuple[Choice, ...]:
    """Return the choices that a sketch leaves open; `samples` caches what TVM draws."""
    indices = [index for index, inst in enumerate(insts) if is_choice(inst)]
    if not indices:
        return ()
    choice_insts = [insts[index] for index in indices]
    # The place where a cached result is written back does not change any loop.
    steps = to_plain_value(trace.as_json()[0])
    key = json.dumps([step for step in steps if step[0] != "ReverseComputeAt"])
    if key not in samples:
        samples[key] = list(_sampled_decisions(tir, insts[: indices[-1] + 1], choice_insts))

    decisions = [to_plain_value(trace.decisions[inst]) for inst in trace.insts if is_choice(inst)]
    has_suggestions = any(SUGGESTS in map(str, i.attrs) for i in trace.insts if i.kind.name == "Annotate")
    choices = []
    for position, (inst, decision) in enumerate(zip(choice_insts, decisions, strict=True)):
        choice = _describe(inst, [sample[position] for sample in samples[key]])
        if has_suggestions and choice.kind is ChoiceKind.TILE and decision:
            choice = replace(choice, suggested=tuple(decision))
        choices.append(choice)
    return tuple(choices)


def _sampled_decisions(tir: str, insts: Sequence[Any], choices: Sequence[Any]) -> Iterator[list[Any]]:
    """Yield TVM's samples of all decisions, and one per loop depth if a location is open."""
    locations = [inst for inst in choices if inst.kind.name == "SampleComputeLocation"]
    for seed in range(1, _SAMPLES + 1 if locations else 2):
        yield _apply(tir, insts, {}, seed)
    # TVM takes the nearest allowed location, so depths beyond the deepest change nothing.
    previous: list[Any] = []
    for depth in range(-2, _DEEPEST_LOCATION if locations else -2):
        sample = _apply(tir, insts, dict.fromkeys(locations, depth), 1)
        yield sample
        if depth > 1 and sample == previous:
            return
        previous = sample


def _apply(tir: str, insts: Sequence[Any], decisions: dict[Any, Any], seed: int) -> list[Any]:
    schedule = new_schedule(tir, seed)
    Trace(insts, decisions).apply_to_schedule(schedule, remove_postproc=False)
    trace = schedule.trace
    return [to_plain_value(trace.decisions[inst]) for inst in trace.insts if is_choice(inst)]


def _describe(inst: Any, decisions: list[Any]) -> Choice:
    match inst.kind.name:
        case "SamplePerfectTile":
            width, limit = to_plain_value(inst.attrs)
            # If the extent depends on earlier choices, TVM adapts the outermost factor to it.
            return Choice(ChoiceKind.TILE, width, extent=math.prod(decisions[0]), limit=max(limit, 0))
        case "SamplePartitionedTile":
            width, position, multiple = to_plain_value(inst.attrs)
            extent = math.prod(decisions[0])
            return Choice(ChoiceKind.TILE, width, extent=extent, inner_multiple=(position, multiple))
        case "SampleCategorical":
            labels, weights = map(tuple, to_plain_value(inst.attrs))
            values = tuple(range(len(labels)))
            return Choice(ChoiceKind.CATEGORICAL, 1, values=values, labels=labels, weights=weights)
        case "SampleComputeLocation":
            values = tuple(sorted(set(decisions)))
            return Choice(ChoiceKind.LOCATION, 1, values=values, weights=(1 / len(values),) * len(values))
        case kind:
            raise NotImplementedError(f"sampling instruction {kind}")
