"""Steps that several kinds of CUDA sketches share, as inlining and loads of vectors."""

import json
from collections.abc import Sequence
from math import gcd, prod
from typing import Any, Final

from tvm.error import InternalError
from tvm.ir import TensorLoad
from tvm.s_tir import Schedule
from tvm.s_tir.dlight.analysis import get_root_block
from tvm.s_tir.dlight.gpu.matmul import auto_inline_consumer_chain
from tvm.s_tir.schedule import ScheduleError
from tvm.tirx import IndexMap, IntImm, IterVar, Var

from mallorn.core.values.candidate import SKETCH_FACTS
from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.tvm.programs.loop_nests import row_major_offset
from mallorn.workers.tvm.programs.program_blocks import extent, variables

REFUSED: Final = (ScheduleError, InternalError, LookupError, TypeError, ValueError)
GRID: Final = ("blockIdx.y", "blockIdx.x")
MOST_GRID_ROWS: Final = 65535  # largest extent of blockIdx.y
VECTOR_BYTES: Final = 16  # of the widest load
_ADDING_THREADS: Final = 128  # of a block of the kernel that adds partial sums


def open_schedule(module: Any) -> Any:
    return Schedule(module, debug_mask="none", error_render_level="none")


def describe(schedule: Any, kind: str, choices: Sequence[str], **facts: Any) -> Any:
    """Annotate a schedule with its kind, its choices' names and facts for a model of its time."""
    text = json.dumps({"kind": kind, "choices": list(choices), **facts}, sort_keys=True)
    schedule.annotate(schedule.get_sblock("root"), SKETCH_FACTS, text)
    return schedule


def child_blocks(schedule: Any) -> list[Any]:
    """Return the program's blocks in order."""
    return list(schedule.get_child_blocks(get_root_block(schedule)))


def is_sum(schedule: Any, block: Any) -> bool:
    axes = schedule.get(block).iter_vars
    return any(axis.iter_type == IterVar.CommReduce for axis in axes)


def inline_pointwise(schedule: Any, exception: Any = None) -> list[Any]:
    """Inline pointwise blocks into consumers, or into sums before them, except the block
    that writes the tensor `exception`. Return what remains."""
    remaining = [
        block
        for block in child_blocks(schedule)
        if not is_sum(schedule, block) and not schedule.get(block).writes[0].source.same_as(exception)
    ]
    is_done = False
    while not is_done:
        is_done = True
        for block in list(remaining):
            try:
                schedule.compute_inline(block)
            except REFUSED:
                continue
            remaining.remove(block)
            is_done = False
    return child_blocks(schedule)


def reads_of(schedule: Any, block: Any) -> list[Any]:
    """Return a block's loads from buffers that it does not write."""
    statement = schedule.get(block)
    own = {hash(write.source) for write in statement.writes}
    loads = collect_nodes(statement.body, TensorLoad)
    return [load for load in loads if hash(load.source) not in own]


def extent_of(schedule: Any, block: Any, load: Any) -> int:
    """Return how many elements a load touches over the whole block."""
    names, axes = variables(*load.indices), schedule.get(block).iter_vars
    return prod(extent(axis) for axis in axes if hash(axis.var) in names)


def steps_of(buffer: Any, indices: Any, axes: Sequence[Any], count: int) -> tuple[list[int | None], int]:
    """Return the step in elements along each axis, None if steps differ, and a number that
    divides the offsets at which runs along the last `count` axes begin."""
    first = row_major_offset(buffer, indices, {})
    steps, offsets = list[int | None](), [first]
    for place, axis in enumerate(axes):
        points = 1, 2, extent(axis) - 1
        moved = [row_major_offset(buffer, indices, {hash(axis.var): point}) - first for point in points]
        steps.append(moved[0] if moved == [moved[0] * point for point in points] else None)
        offsets += moved if place < len(axes) - count else []
    # Numbers in memory that select a row may be any.
    looked_up = [place for place, index in enumerate(indices) if collect_nodes(index, TensorLoad)]
    return steps, gcd(*offsets, *(prod(map(int, buffer.shape[place + 1 :])) for place in looked_up))


def reads_neighbours(schedule: Any, block: Any, vector: int) -> bool:
    """Return whether a block's first vector along its last axis reads neighbours in memory,
    as all copies do but those of numbers that are packed, of which several share a word."""
    axis, points = schedule.get(block).iter_vars[-1], range(vector)
    places = (
        [row_major_offset(load.source, load.indices, {hash(axis.var): point}) for point in points]
        for load in reads_of(schedule, block)
    )
    return any([place - row[0] for place in row] == [*points] for row in places)


def sample(schedule: Any, *values: int) -> Any:
    """Sample one of several equally likely numbers. Raises ValueError if there are none."""
    if not values:
        raise ValueError("a choice without values")
    return schedule.sample_categorical(list(values), [1 / len(values)] * len(values))


def sample_tile(schedule: Any, loop: Any, factors: Sequence[int], limit: int) -> list[Any]:
    """Sample a loop's factors, the innermost at most `limit`. The schedule is built with numbers
    near `factors`, of which 0 is what remains: TVM could draw some for which later steps fail."""
    remaining = int(schedule.get(loop).extent)
    decision = list(factors)
    for place in (0, *reversed(range(1, len(factors)))):
        if factors[place]:
            decision[place] = gcd(remaining, factors[place])
            remaining //= decision[place]
    decision[factors.index(0)] = remaining
    tile: list[Any] = schedule.sample_perfect_tile(loop, len(decision), limit, decision)
    return tile


def vector_read(schedule: Any, block: Any, index: int, loop: Any, vector: int, scope: str = "local") -> Any:
    """Copy what a block reads of one tensor in an iteration of a loop to registers, by
    loads of at most 16 bytes. `vector` is the longest region that an iteration reads."""
    source = schedule.get(block).reads[index].source
    copy = schedule.cache_read(block, index, scope, consumer_blocks=[block])
    schedule.compute_at(copy, loop, preserve_unit_loops=True)
    last = schedule.get_loops(copy)[-1]
    lanes = int(VECTOR_BYTES // element_bytes(str(source.dtype)))
    if vector > lanes:
        _, last = schedule.split(last, [None, lanes])
    schedule.vectorize(last)
    return copy


def bind(schedule: Any, loops: Sequence[Any], *axes: str) -> None:
    """Bind loops to axes of the grid or of a thread block."""
    for loop, axis in zip(loops, axes, strict=True):
        schedule.bind(loop, axis)


def fusion(axes: Sequence[Any], groups: Sequence[Sequence[Any]]) -> Any:
    """Return the index map that fuses each group of a block's axes to one axis."""
    inputs = {hash(axis.var): Var(f"i{index}", axis.var.ty) for index, axis in enumerate(axes)}
    outputs = []
    for group in groups:
        fused: Any = IntImm(axes[0].var.ty.dtype, 0)
        for position, axis in enumerate(group):
            var = inputs[hash(axis.var)]
            fused = fused * extent(axis) + var if position else var
        outputs.append(fused)
    return IndexMap(list(inputs.values()), outputs, None)


def vectors(extent: int, limit: int) -> list[int]:
    """Return the powers of two up to `limit` that divide an extent."""
    return [lanes for lanes in (1, 2, 4, 8, 16, 32) if lanes <= limit and extent % lanes == 0]


def add_partial_sums(schedule: Any, final: Any, dtype: str) -> None:
    """Schedule the kernel that adds the partial sums of a product that is split."""
    result = schedule.cache_write(final, 0, "local")
    auto_inline_consumer_chain(schedule, result)
    *rows, columns = schedule.get_loops(result)
    elements = VECTOR_BYTES // max(4, int(element_bytes(dtype)))
    grid, threads, vector = schedule.split(columns, [None, _ADDING_THREADS, elements])
    bind(schedule, [schedule.fuse(*rows), grid, threads], "blockIdx.x", "blockIdx.y", "threadIdx.x")
    schedule.vectorize(vector)
    schedule.compute_at(final, threads, preserve_unit_loops=True)
    _, _, _, splits, *_, elements_of_sum = schedule.get_loops(final)
    schedule.vectorize(elements_of_sum)
    schedule.decompose_reduction(final, splits)
