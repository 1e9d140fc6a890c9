"""Caches of parsed programs and traces: a compiler child gets the same few repeatedly."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Schedule, Trace

from mallorn.core.errors import Unschedulable
from mallorn.graphc.core.vector_lanes import lanes_of, sum_registers_of
from mallorn.graphc.quant.dot_product_function import PAIRS
from mallorn.workers.tvm.programs.allowed_programs import HINT, check_program, describe_refusal, read_trace
from mallorn.workers.tvm.programs.buffer_bounds import check_bounds
from mallorn.workers.tvm.programs.compiler_kind import compiler_kind
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics, load_intrinsics_of

# Another space generator, or another version of our use of it, makes different sketches.
SPACE: Final = "post-order-apply"
_SEED: Final = 1


@lru_cache(maxsize=8)
def parse_tvm_target(target: str) -> Any:
    """Parse a canonical target text to a TVM target, and register its tensor intrinsics."""
    attrs = json.loads(target)
    load_intrinsics(target)
    if "tag" in attrs:
        del attrs["kind"]  # with a kind, TVM silently ignores the attributes of the tag
    return tvm.target.Target(attrs)


def vector_lanes(target: str) -> int:
    """Return how many 32-bit numbers a CPU's vector register holds; 1 for other targets."""
    if json.loads(target)["kind"] != "llvm":
        return 1
    return max(1, lanes_of(parse_tvm_target(target)))


def sum_registers(target: str) -> int:
    """Return how many of a CPU's vector registers can hold sums; 0 if that is not known."""
    return 0 if json.loads(target)["kind"] != "llvm" else sum_registers_of(parse_tvm_target(target))


@lru_cache(maxsize=64)
def parse_module(tir: str) -> Any:
    """Load a module from ``tvm.ir.save_json``. Raises Unschedulable if it is not allowed,
    or may leave its buffers."""
    check_program(tir)
    mod = tvm.ir.load_json(tir)
    try:
        check_bounds(mod)
    except (ValueError, RecursionError) as error:
        message = f"a stored program is refused: {describe_refusal(error)}"
        raise Unschedulable(message, hint=HINT) from None
    return mod


@lru_cache(maxsize=64)
def tune_context(tir: str, target: str) -> Any:
    """Return a TuneContext of a program, with MetaSchedule's space generator."""
    generator = SPACE
    if PAIRS in tir:  # MetaSchedule's postprocessors for VNNI, which tensorize
        steps = ms.postproc
        generator = ms.space_generator.PostOrderApply(
            postprocs=[
                steps.DisallowDynamicLoop(),
                steps.RewriteParallelVectorizeUnroll(),
                steps.RewriteReductionBlock(),
                steps.RewriteTensorize(vectorize_init_loop=True),
                steps.RewriteLayout(),
            ]
        )
    return _context(parse_module(tir), parse_tvm_target(target), generator)


@lru_cache(maxsize=64)
def design_contexts(tir: str, target: str) -> tuple[Any, ...]:
    """Return the tuning contexts whose space generators make a program's sketches."""
    spaces = compiler_kind(target).design_spaces(parse_tvm_target(target))
    contexts = [_context(parse_module(tir), own_target, generator) for own_target, generator in spaces]
    return tuple(contexts or [tune_context(tir, target)])


def with_rules(context: Any, rules: Sequence[Any]) -> Any:
    """Return a copy of a tuning context whose space generator applies only `rules`."""
    generator = ms.space_generator.PostOrderApply(sch_rules=rules, postprocs=[], mutator_probs={})
    return _context(context.mod, context.target, generator)


def _context(module: Any, target: Any, generator: Any) -> Any:
    return ms.TuneContext(module, target=target, space_generator=generator, rand_state=_SEED, num_threads=1)


@lru_cache(maxsize=512)
def instructions(tir: str, trace: str) -> tuple[Any, ...]:
    """Return the instructions of a sketch's trace, which is JSON without decisions. Raises
    TraceRefused if an instruction is not allowed."""
    steps = read_trace(trace)
    load_intrinsics_of(trace)
    schedule = new_schedule(tir)
    Trace.apply_json_to_schedule([steps, []], schedule)
    return tuple(schedule.trace.insts)


def new_schedule(tir: str, seed: int = _SEED) -> Any:
    """Return a schedule without steps. Equal seeds draw equal samples in every process."""
    return Schedule(parse_module(tir), seed=seed, debug_mask="none", error_render_level="none")


TILES: Final = ("SamplePerfectTile", "SamplePartitionedTile")  # they sample several numbers


def is_choice(instruction: Any) -> bool:
    return str(instruction.kind.name).startswith("Sample")
