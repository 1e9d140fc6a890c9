"""Programs without a sum, whose time is that of moving bytes: elementwise operators, broadcasts,
casts, concatenations, pads, slices and transposes.

Neighbouring threads write neighbouring vectors, and each thread writes several, which lie a
whole thread block apart. Where an input's neighbours in memory are far apart in the result,
a tile passes through shared memory instead. Its rows are one word longer than all banks, so
that neither rows nor columns have bank conflicts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import gcd, prod
from operator import itemgetter
from typing import Any, Final

from tvm.ir import Call, TensorLoad
from tvm.tirx import BufferStore, Select

from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.tvm.cuda_sketches.blocks import (
    REFUSED,
    VECTOR_BYTES,
    bind,
    describe,
    fusion,
    inline_pointwise,
    is_sum,
    open_schedule,
    sample,
    vectors,
)
from mallorn.workers.tvm.loop_nests import row_major_offset
from mallorn.workers.tvm.program_blocks import extent, variables

KIND: Final = "mover"
_THREADS: Final = (64, 128, 256, 512, 1024)
_STEPS: Final = (1, 2, 4, 8)  # vectors of a thread
_BANKS: Final = 32  # of shared memory
_WORD_BYTES: Final = 4  # of a bank
_LEAST_SIDE: Final = 8  # of a transposed tile: others would be mostly empty


@dataclass(frozen=True, slots=True)
class Walk:
    """How an access walks through memory when the axes of a block advance."""

    buffer: Any
    steps: tuple[int | None, ...]  # in elements, of each axis; None if they are not all equal
    alignment: int  # all offsets of first elements of a run are multiples of it

    def is_run(self, count: int, packed: Sequence[int]) -> bool:
        """Return whether elements along the last axes are neighbours, or the same element."""
        last = self.steps[-count:]
        return set(last) == {0} or list(last) == list(packed[-count:])


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield a schedule with open choices if the program has no sum, and one result."""
    with suppress(*REFUSED):
        schedule = open_schedule(module)
        (block,) = inline_pointwise(schedule)
        body = schedule.get(block).body
        axes = [axis for axis in schedule.get(block).iter_vars if extent(axis) > 1]
        if is_sum(schedule, block) or not isinstance(body, BufferStore) or not axes:
            return
        packed = [prod(map(extent, axes[place + 1 :])) for place in range(len(axes))]
        if not _walk(body.buffer, body.indices, axes, 1).is_run(len(axes), packed):
            return
        loads = collect_nodes(body, TensorLoad)
        conditions = [select.condition for select in collect_nodes(body, Select)]
        for call in collect_nodes(body, Call):
            if getattr(call.op, "name", "") == "tirx.if_then_else":
                conditions.append(call.args[0])
        branching = variables(*conditions)
        read = {load.source: element_bytes(str(load.source.dtype)) for load in loads}
        facts = {"read": sum(read.values()), "written": element_bytes(str(body.buffer.dtype))}
        tile = None if conditions else _tile(loads, axes)
        if tile is not None:
            size = int(element_bytes(str(tile[0].buffer.dtype)))
            yield describe(schedule, KIND, share_tiles(schedule, block, *tile), tiled=size, **facts)
            return
        runs = [(1, axes[-1:])]
        for count in range(1, len(axes) + 1):
            group, aligned = axes[-count:], [_walk(x.source, x.indices, axes, count) for x in loads]
            if {hash(axis.var) for axis in group} & branching:
                break
            if all(walk.is_run(count, packed) for walk in aligned):
                moved = [walk.alignment for walk in aligned if any(walk.steps[-count:])]
                runs.append((gcd(prod(map(extent, group)), *moved), group))
        choices = share_vectors(schedule, block, *max(runs, key=itemgetter(0)))
        yield describe(schedule, KIND, choices, tiled=0, **facts)


def share_vectors(schedule: Any, block: Any, run: int, group: Sequence[Any]) -> list[str]:
    """Let neighbouring threads write neighbouring vectors along the last axes, which divide
    runs of `run` elements. Return the names of the choices."""
    statement, loops = schedule.get(block), schedule.get_loops(block)
    widest = max(element_bytes(str(each.source.dtype)) for each in (*statement.reads, *statement.writes))
    lanes = sample(schedule, *vectors(run, int(VECTOR_BYTES // widest)))
    begin = list(statement.iter_vars).index(group[0])
    # Conditions on other axes do not depend on the lane, so they do not prevent vectors.
    vector, lane = schedule.split(schedule.fuse(*loops[begin:]), [None, lanes])
    vector = schedule.fuse(*loops[:begin], vector)
    threads, steps = sample(schedule, *_THREADS), sample(schedule, *_STEPS)
    grid, step, thread = schedule.split(vector, [None, steps, threads])
    schedule.reorder(grid, thread, step)
    bind(schedule, [grid, thread], "blockIdx.x", "threadIdx.x")
    schedule.unroll(step)
    schedule.vectorize(lane)
    return ["lanes", "threads", "vectors of a thread"]


def share_tiles(schedule: Any, block: Any, load: Walk, across: list[Any], along: list[Any]) -> list[str]:
    """Move tiles through shared memory. Elements of the load are neighbours along the axes
    `across`, elements of the result along `along`. Return the names of the choices."""
    statement = schedule.get(block)
    size, result_size = (
        int(element_bytes(str(buffer.dtype))) for buffer in (load.buffer, statement.writes[0].source)
    )
    index = [hash(each.source) for each in statement.reads].index(hash(load.buffer))
    axes = list(statement.iter_vars)
    batch = [axis for axis in axes if axis not in across and axis not in along]
    run_read, run = (prod(map(extent, side)) for side in (across, along))
    run_read = gcd(run_read, load.alignment)
    schedule.transform_block_layout(block, fusion(axes, [batch, across, along]))
    copy = schedule.reindex(block, ("read", index))
    loaded = schedule.reindex(copy, ("read", 0))
    for stage, scope in ((copy, "shared"), (loaded, "local")):
        schedule.transform_layout(stage, ("write", 0), lambda *at: (*at[:-2], at[-1], at[-2]))
        schedule.set_scope(stage, 0, scope)
    result = schedule.reindex(block, ("write", 0))
    schedule.set_scope(block, 0, "local")
    lanes = sample(schedule, *vectors(run, VECTOR_BYTES // max(size, result_size)))
    threads, tiles = sample(schedule, *_THREADS[:3]), sample(schedule, 1, 2, 4)
    *outer, column, row = schedule.get_loops(result)
    grid_column, column = schedule.split(column, [None, _BANKS * _WORD_BYTES // size])
    grid_row, tile, row = schedule.split(row, [None, tiles, _BANKS])
    vector, lane = schedule.split(row, [None, lanes])
    schedule.reorder(*outer, grid_column, grid_row, tile, column, vector, lane)
    step, thread = schedule.split(schedule.fuse(column, vector), [None, threads])
    grid = schedule.fuse(*outer, grid_column, grid_row)
    bind(schedule, [grid, thread], "blockIdx.x", "threadIdx.x")
    schedule.vectorize(lane)
    schedule.compute_at(block, thread, preserve_unit_loops=True)
    schedule.compute_at(copy, grid, preserve_unit_loops=True)
    lanes_read = sample(schedule, *vectors(run_read, VECTOR_BYTES // size))
    *_, column, row = schedule.get_loops(copy)  # the tile's
    column, lane = schedule.split(column, [None, lanes_read])
    schedule.reorder(row, column, lane)
    copy_step, thread = schedule.split(schedule.fuse(row, column), [None, threads])
    bind(schedule, [thread], "threadIdx.x")
    schedule.compute_at(loaded, thread, preserve_unit_loops=True)
    schedule.vectorize(schedule.fuse(*schedule.get_loops(loaded)[-2:]))
    for loop in (step, copy_step):
        schedule.unroll(loop)
    schedule.storage_align(copy, 0, -2, _BANKS * _WORD_BYTES // size, _WORD_BYTES // size)
    return ["lanes", "threads", "tiles of a block", "lanes of loads"]


def _walk(buffer: Any, indices: Sequence[Any], axes: Sequence[Any], count: int) -> Walk:
    """Return how an access walks; its alignment is that of runs along the last `count` axes."""
    first = row_major_offset(buffer, indices, {})
    steps, offsets = list[int | None](), [first]
    for place, axis in enumerate(axes):
        points = 1, 2, extent(axis) - 1
        moved = [row_major_offset(buffer, indices, {hash(axis.var): point}) - first for point in points]
        steps.append(moved[0] if moved == [moved[0] * point for point in points] else None)
        offsets += moved if place < len(axes) - count else []
    # Numbers in memory that select a row may be any.
    chosen = [place for place, index in enumerate(indices) if collect_nodes(index, TensorLoad)]
    offsets += [prod(map(int, buffer.shape[place + 1 :])) for place in chosen]
    return Walk(buffer, tuple(steps), gcd(*offsets))


def _tile(loads: Sequence[Any], axes: Sequence[Any]) -> tuple[Walk, list[Any], list[Any]] | None:
    """Return how the first load walks whose neighbours differ from the result's, with the axes
    of its neighbours and of the result's; None if there is no such load."""
    for load in loads:
        walk = _walk(load.source, load.indices, axes, 0)
        steps = [step or 0 for step in walk.steps]
        if 1 not in steps[:-1] or not all(steps):
            continue
        last = begin = steps.index(1)
        while begin and steps[begin - 1] == steps[begin] * extent(axes[begin]):
            begin -= 1
        end = len(axes) - 1
        while end - 1 > last and steps[end - 1] == steps[end] * extent(axes[end]):
            end -= 1
        across, along = axes[begin : last + 1], axes[end:]
        if min(prod(map(extent, side)) for side in (across, along)) < _LEAST_SIDE:
            return None
        rows = [step for axis, step in zip(axes, steps, strict=True) if axis not in across]
        first = row_major_offset(load.source, load.indices, {})
        return Walk(load.source, walk.steps, gcd(first, *rows)), across, along
    return None
