"""Helpers of the graph passes: properties of calls, padded sizes, TVMScript, schedules."""

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from traceback import walk_stack
from typing import Any

import tvm
import tvm_ffi
from tvm import relax
from tvm.ir import TensorLoad
from tvm.s_tir import SBlock, Schedule
from tvm.s_tir.meta_schedule.schedule_rule import AutoInline
from tvm.tirx import IntImm, IterVar

LANES = 16  # float32 numbers in the widest vector; recipes before 0.2.0 know no other width
ROWS = range(4, 14)  # rows whose sums fill the registers without spills
# Annotations of a block: its schedule rule, and what it computes.
RULE, WIDTH, OPERATOR, WORK = "schedule_rule", "mallorn_width", "mallorn_operator", "mallorn_work"
TERMS = "mallorn_terms"  # number of products that the block sums up
SUGGESTS = "mallorn_suggests"  # the block's rule chooses tiles itself if there is no search
MOST_LOADS = 1000  # loads in one expression: about ten times those of usual networks
WIDEST = 64  # most numbers that MetaSchedule vectorises at once
# TVM's pattern kinds: element-wise operators fuse after the first, nothing with the second.
OUT_ELEMENTWISE_FUSABLE, OPAQUE = 4, 8
_UNARY = {"clip", "exp", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu", "nn.relu", "nn.silu", "sigmoid", "tanh"}
_BINARY = {"add", "divide", "maximum", "minimum", "multiply", "subtract"}
ELEMENTWISE = tuple(sorted(f"relax.{name}" for name in _UNARY | _BINARY))


@lru_cache(maxsize=1024)
def parse_tvmscript(text: str) -> Any:
    """Parse TVMScript into a tensor function; cached, since layers repeat."""
    with stacks_without_sources():
        return tvm.script.from_source(text)


@contextmanager
def stacks_without_sources() -> Iterator[None]:
    """Make inspect.stack() read no source files here: TVM's parser needs only variables,
    and files take most of its time where the stack is deep."""
    real = inspect.stack
    inspect.stack = _stack
    try:
        yield
    finally:
        inspect.stack = real


def _stack(context: int = 1) -> list[inspect.FrameInfo]:  # noqa: ARG001 (as inspect.stack)
    return [
        inspect.FrameInfo(frame, frame.f_code.co_filename, line, frame.f_code.co_name, None, None)
        for frame, line in walk_stack(sys._getframe(1))
    ]


def has_static_tir_shapes(function: Any) -> bool:
    """Return whether all tensor parameters of a tensor function have known sizes."""
    tensors = [param.ty for param in function.params]
    return all(isinstance(size, IntImm) for ty in tensors for size in getattr(ty, "shape", ()))


def annotate_blocks(function: Any, blocks: Iterable[Any], rule: str, width: int) -> Any:
    """Return the function with blocks annotated with a schedule rule and a vector width."""
    schedule = Schedule(function, debug_mask="none")
    for block in blocks:
        sblock = schedule.get_sblock(block.name_hint)
        if RULE in block.annotations:
            schedule.unannotate(sblock, RULE)
        schedule.annotate(sblock, RULE, rule)
        schedule.annotate(sblock, WIDTH, width)
    return schedule.mod["main"]


def collect_nodes(root: Any, kind: type) -> list[Any]:
    """Return all nodes of class `kind` below `root`, outermost first."""
    nodes: list[Any] = []
    tvm_ffi.structural_walk(root, (kind, lambda node: nodes.append(node)), order="pre")
    return nodes


def has_known_sizes(call: Any) -> bool:
    """Return whether all sizes of a call's arguments and result are static."""
    values = [v for v in (*call.args, call) if not isinstance(v, relax.ShapeExpr | tvm.ir.GlobalVar)]
    types = [
        ty
        for value in values
        for ty in (value.ty.fields if isinstance(value.ty, relax.TupleType) else [value.ty])
    ]
    return all(
        ty.shape is not None and all(isinstance(size, IntImm) for size in ty.shape)
        for ty in types
        if isinstance(ty, relax.TensorType)
    )


def is_channels_last(convolution: Any) -> bool:
    """Return whether a conv2d has NHWC data and result, and constant HWIO weights."""
    attrs = convolution.attrs
    layouts = attrs.data_layout, attrs.kernel_layout, attrs.out_layout
    return layouts == ("NHWC", "HWIO", "NHWC") and isinstance(convolution.args[1], tvm.ir.GenericConst)


def copy_convolution(call: Any, data: Any, weights: Any, **changed: Any) -> Any:
    """Return a copy of a convolution with other data, weights and `changed` attributes."""
    names = "strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout"
    attributes = {name: getattr(call.attrs, name) for name in (*names, "out_dtype")}
    return getattr(relax.op.nn, call.op.name.rpartition(".")[2])(data, weights, **(attributes | changed))


def sizes_of(value: Any) -> tuple[int, ...]:
    return tuple(map(int, value.ty.shape))


def permutation(transpose: Any) -> tuple[int, ...]:
    """Return, for each axis of a transpose's result, the axis of its source."""
    ndim = transpose.ty.ndim
    return tuple(int(axis) % ndim for axis in transpose.attrs.axes or range(ndim)[::-1])


def sizes_at(shape: Any, length: Any, sample: int) -> list[int]:
    """Return a symbolic shape as integers, with the variable `length` set to `sample`."""
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(length, IntImm("int64", sample))
    return [int(analyzer.simplify(size)) for size in shape]


def is_worth_padding(outputs: int, lanes: int) -> bool:
    """Return whether rounding up to a multiple of `lanes` makes at most a third padding."""
    return 2 * round_up_to_vectors(outputs, lanes) <= 3 * outputs


def largest_factor(number: int, limit: int) -> int:
    """Return the largest divisor of `number` up to `limit`, or 1 if the limit is below 1."""
    return max(factor for factor in range(1, max(1, limit) + 1) if number % factor == 0)


def round_up_to_vectors(outputs: int, lanes: int) -> int:
    return -(-outputs // lanes) * lanes


def round_up_rows(rows: int) -> int:
    """Round up to a multiple of a tile height in ROWS; numbers up to 13 stay unchanged."""
    padded_rows = rows
    while padded_rows > ROWS[-1] and not any(padded_rows % tile == 0 for tile in ROWS):
        padded_rows += 1
    return padded_rows


def round_up_columns(columns: int, lanes: int) -> int:
    """Round columns above `lanes` up to a multiple of it, if at most 1/3 is padding."""
    pays = columns > lanes and is_worth_padding(columns, lanes)
    return round_up_to_vectors(columns, lanes) if pays else columns


def numbers(sizes: Iterable[int]) -> str:
    """Join sizes as int64 literals, Relax's index type; TVM would not fuse other types."""
    return ", ".join(f"T.int64({size})" for size in sizes)


def format_result_copy(sizes: Sequence[int]) -> str:
    """Return TVMScript that copies `z`, which may be larger, to `y`, of shape `sizes`."""
    axes = [f"i{axis}" for axis in range(len(sizes))]
    place = ", ".join(f"v{axis}" for axis in axes)
    return f"""
    for {", ".join(axes)} in T.grid({numbers(sizes)}):
        with T.sblock("taken"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = z[{place}]
"""


# MetaSchedule's inlining rule for CPUs.
_INLINE = AutoInline(
    into_producer=False,
    into_consumer=True,
    inline_const_tensor=True,
    disallow_if_then_else=True,
    require_injective=True,
    require_ordered=True,
    disallow_op=["tirx.exp"],
)


def extent_of(schedule: Any, loop: Any) -> int:
    return int(schedule.get(loop).extent)


def split_in_two(schedule: Any, loop: Any, limit: int, default: int) -> list[Any]:
    """Split a loop in two; the inner extent is sampled, and at most `default` at first."""
    extent = extent_of(schedule, loop)
    inner = largest_factor(extent, min(limit, default))
    factors = schedule.sample_perfect_tile(loop, 2, limit, [extent // inner, inner])
    return list(schedule.split(loop, factors))


def inlines_too_much(function: Any) -> bool:
    """Return whether inlining would make an expression with over MOST_LOADS loads.

    If a block loads an element several times, as a polynomial does, it multiplies all loads
    that are inlined into it.
    """
    total: dict[int, int] = {}
    for block in collect_nodes(function, SBlock):
        if {axis.iter_type for axis in block.iter_vars} == {IterVar.DataPar}:
            loads = [total.get(hash(load.source), 1) for load in collect_nodes(block.body, TensorLoad)]
            if len(loads) < sum(loads) and sum(loads) > MOST_LOADS:
                return True
            total.update((hash(region.source), sum(loads)) for region in block.writes)
    return False


def inline_all_but(schedule: Any, blocks: Iterable[Any]) -> Any:
    """Inline the blocks that MetaSchedule would inline, except `blocks`.

    Schedule rules call it because TVM applies them before it inlines other blocks. It does
    nothing if `inlines_too_much`.
    """
    if inlines_too_much(schedule.mod["main"]):
        return schedule
    kept_names = {schedule.get(candidate).name_hint for candidate in blocks}
    for candidate in schedule.get_child_blocks(schedule.get_sblock("root")):
        if schedule.get(candidate).name_hint not in kept_names:
            (schedule,) = _INLINE.apply(schedule, candidate)
    return schedule
