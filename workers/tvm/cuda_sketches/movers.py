"""Programs without a sum, whose time is that of moving bytes: elementwise operators, broadcasts,
casts, concatenations, pads, slices and transposes.

Neighbouring threads write neighbouring vectors, and each thread writes several, which lie a
whole thread block apart. Where an input's neighbours in memory are far apart in the result,
a tile passes through shared memory instead. Its rows are one word longer than all banks, so
that neither rows nor columns have bank conflicts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import gcd, prod
from typing import Any, Final

from tvm.ir import Call, TensorLoad
from tvm.tirx import BufferStore, Select

from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.workers.tvm.cuda_sketches import blocks
from mallorn.workers.tvm.loop_nests import row_major_offset
from mallorn.workers.tvm.program_blocks import extent, variables

KIND: Final = "mover"
_THREADS: Final = (64, 128, 256, 512, 1024)
_STEPS: Final = (1, 2, 4, 8)  # vectors of a thread
_BANKS: Final = 32  # of shared memory
_WORD_BYTES: Final = 4  # of a bank
_LEAST_SIDE: Final = 8  # of a transposed tile: others would be mostly empty


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield a schedule with open choices if the program has no sum, and one result."""
    with suppress(*blocks.REFUSED):
        schedule = blocks.open_schedule(module)
        (block,) = blocks.inline_pointwise(schedule)
        body = schedule.get(block).body
        axes = [axis for axis in schedule.get(block).iter_vars if extent(axis) > 1]
        packed = [prod(map(extent, axes[place + 1 :])) for place in range(len(axes))]
        if blocks.is_sum(schedule, block) or not isinstance(body, BufferStore):
            return
        if _steps(body.buffer, body.indices, axes, 0)[0] != packed:
            return
        loads = [(load.source, load.indices) for load in collect_nodes(body, TensorLoad)]
        conditions = [select.condition for select in collect_nodes(body, Select)]
        for call in collect_nodes(body, Call):
            if getattr(call.op, "name", "") == "tirx.if_then_else":
                conditions.append(call.args[0])
        read = {buffer: element_bytes(str(buffer.dtype)) for buffer, _ in loads}
        facts = {"read": sum(read.values()), "written": element_bytes(str(body.buffer.dtype))}
        if not conditions and (tile := _tile(loads, axes)) is not None:
            choices, facts["tiled"] = share_tiles(schedule, block, *tile), read[tile[0]]
        else:
            # Lanes that a condition tells apart are no vector.
            first = max(
                (i + 1 for i, x in enumerate(axes) if hash(x.var) in variables(*conditions)), default=0
            )
            runs = {count: _run(loads, axes, packed, count) for count in range(1, len(axes) - first + 1)}
            count = max(runs, key=runs.__getitem__, default=1)
            choices = share_vectors(schedule, block, runs.get(count, 1), axes[-count])
        yield blocks.describe(schedule, KIND, choices, **facts)


def share_vectors(schedule: Any, block: Any, run: int, first: Any) -> list[str]:
    """Let neighbouring threads write neighbouring vectors along the axes from `first` on, which
    divide runs of `run` elements. Return the names of the choices."""
    statement, loops = schedule.get(block), schedule.get_loops(block)
    widest = max(element_bytes(str(each.source.dtype)) for each in (*statement.reads, *statement.writes))
    lanes = blocks.sample(schedule, *blocks.vectors(run, int(blocks.VECTOR_BYTES // widest)))
    begin = list(statement.iter_vars).index(first)
    # Conditions on other axes do not depend on the lane, so they do not prevent vectors.
    vector, lane = schedule.split(schedule.fuse(*loops[begin:]), [None, lanes])
    vector = schedule.fuse(*loops[:begin], vector)
    threads, steps = blocks.sample(schedule, *_THREADS), blocks.sample(schedule, *_STEPS)
    grid, step, thread = schedule.split(vector, [None, steps, threads])
    schedule.reorder(grid, thread, step)
    blocks.bind(schedule, [grid, thread], "blockIdx.x", "threadIdx.x")
    schedule.unroll(step)
    schedule.vectorize(lane)
    return ["lanes", "threads", "vectors of a thread"]


def share_tiles(
    schedule: Any, block: Any, source: Any, across: Sequence[Any], along: Sequence[Any], run: int
) -> list[str]:
    """Move tiles through shared memory. Elements of `source` are neighbours along the axes
    `across`, in runs of `run`; elements of the result along `along`. Return the names of the
    choices."""
    statement = schedule.get(block)
    size, written = (int(element_bytes(str(x.dtype))) for x in (source, statement.writes[0].source))
    index = [hash(each.source) for each in statement.reads].index(hash(source))
    axes, run_written = list(statement.iter_vars), prod(map(extent, along))
    batch = [axis for axis in axes if axis not in across and axis not in along]
    schedule.transform_block_layout(block, blocks.fusion(axes, [batch, across, along]))
    copy = schedule.reindex(block, ("read", index))
    loaded = schedule.reindex(copy, ("read", 0))
    for stage, scope in ((copy, "shared"), (loaded, "local")):
        schedule.transform_layout(stage, ("write", 0), lambda *at: (*at[:-2], at[-1], at[-2]))
        schedule.set_scope(stage, 0, scope)
    result = schedule.reindex(block, ("write", 0))
    schedule.set_scope(block, 0, "local")
    widest = blocks.VECTOR_BYTES // max(size, written)
    lanes = blocks.sample(schedule, *blocks.vectors(run_written, widest))
    threads, tiles = blocks.sample(schedule, *_THREADS[:3]), blocks.sample(schedule, 1, 2, 4)
    lanes_read = blocks.sample(schedule, *blocks.vectors(run, blocks.VECTOR_BYTES // size))
    *outer, column, row = schedule.get_loops(result)
    grid_column, column = schedule.split(column, [None, _BANKS * _WORD_BYTES // size])
    grid_row, tile, row = schedule.split(row, [None, tiles, _BANKS])
    vector, lane = schedule.split(row, [None, lanes])
    schedule.reorder(*outer, grid_column, grid_row, tile, column, vector, lane)
    step, thread = schedule.split(schedule.fuse(column, vector), [None, threads])
    grid = schedule.fuse(*outer, grid_column, grid_row)
    blocks.bind(schedule, [grid, thread], "blockIdx.x", "threadIdx.x")
    schedule.vectorize(lane)
    schedule.compute_at(block, thread, preserve_unit_loops=True)
    schedule.compute_at(copy, grid, preserve_unit_loops=True)
    *_, column, row = schedule.get_loops(copy)  # the tile's
    column, lane = schedule.split(column, [None, lanes_read])
    schedule.reorder(row, column, lane)
    copy_step, thread = schedule.split(schedule.fuse(row, column), [None, threads])
    blocks.bind(schedule, [thread], "threadIdx.x")
    schedule.compute_at(loaded, thread, preserve_unit_loops=True)
    schedule.vectorize(schedule.fuse(*schedule.get_loops(loaded)[-2:]))
    for loop in (step, copy_step):
        schedule.unroll(loop)
    schedule.storage_align(copy, 0, -2, _BANKS * _WORD_BYTES // size, _WORD_BYTES // size)
    return ["lanes", "threads", "tiles of a block", "lanes of loads"]


def _steps(buffer: Any, indices: Any, axes: Sequence[Any], count: int) -> tuple[list[int | None], int]:
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


def _run(loads: Sequence[Any], axes: Sequence[Any], packed: Sequence[int], count: int) -> int:
    """Return what the lengths of vectors along the last `count` axes must divide."""
    runs = [prod(map(extent, axes[-count:]))]
    for buffer, indices in loads:
        steps, alignment = _steps(buffer, indices, axes, count)
        if set(steps[-count:]) != {0}:
            runs.append(alignment if steps[-count:] == packed[-count:] else 1)
    return gcd(*runs)


def _tile(loads: Sequence[Any], axes: Sequence[Any]) -> tuple[Any, Sequence[Any], Sequence[Any], int] | None:
    """Return the first tensor whose neighbours differ from the result's, the axes of its
    neighbours and of the result's, and what the lengths of vectors must divide; None if there
    is no such tensor."""
    for buffer, indices in loads:
        maybe_steps, first = _steps(buffer, indices, axes, len(axes))
        steps = [step or 0 for step in maybe_steps]
        if 1 not in steps[:-1] or not all(steps):
            continue
        last = begin = steps.index(1)
        while begin and steps[begin - 1] == steps[begin] * extent(axes[begin]):
            begin -= 1
        end = len(axes) - 1
        while end - 1 > last and steps[end - 1] == steps[end] * extent(axes[end]):
            end -= 1
        sides = [prod(map(extent, side)) for side in (axes[begin : last + 1], axes[end:])]
        run = gcd(first, sides[0], *steps[:begin], *steps[last + 1 :])
        return (buffer, axes[begin : last + 1], axes[end:], run) if min(sides) >= _LEAST_SIDE else None
    return None
