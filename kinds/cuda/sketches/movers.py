"""Programs without a sum, as elementwise operators, concatenations, pads, slices and transposes.

Neighbouring threads write neighbouring vectors. Where an input's neighbours in memory are
far apart in the result, a tile passes through shared memory. Its rows are one word longer
than all banks, so that neither rows nor columns have bank conflicts.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import gcd, prod
from typing import Any, Final

from tvm.ir import Call, TensorLoad
from tvm.tirx import BufferStore, Select

from mallorn.core.values.machine import element_bytes
from mallorn.graphc.core.graph_rewriting import collect_nodes
from mallorn.kinds.cuda.compute_capability import BANK_BYTES, BANKS
from mallorn.kinds.cuda.sketches import blocks
from mallorn.workers.tvm.programs.program_blocks import extent, variables

KIND: Final = "mover"
_THREADS: Final = (64, 128, 256, 512, 1024)
_STEPS: Final = (1, 2, 4, 8)  # vectors of a thread
_BRANCH: Final = "prim.if_then_else"
_LEAST_SIDE: Final = 8  # of a transposed tile: others would be mostly empty


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield a schedule with open choices if the program has no sum, and one result."""
    with suppress(*blocks.REFUSED):
        schedule = blocks.open_schedule(module)
        (block,) = blocks.inline_pointwise(schedule)
        body = schedule.get(block).body
        axes = [axis for axis in schedule.get(block).iter_vars if extent(axis) > 1]
        strides = [prod(map(extent, axes[place + 1 :])) for place in range(len(axes))]
        is_store = isinstance(body, BufferStore) and not blocks.is_sum(schedule, block)
        if not is_store or blocks.steps_of(body.buffer, body.indices, axes, 0)[0] != strides:
            return
        loads = [(load.source, load.indices) for load in collect_nodes(body, TensorLoad)]
        conditions = [node.condition for node in collect_nodes(body, Select)]
        calls = [call for call in collect_nodes(body, Call) if getattr(call.op, "name", "") == _BRANCH]
        names = variables(*conditions, *(call.args[0] for call in calls))
        sizes = {buffer: element_bytes(str(buffer.dtype)) for buffer, _ in [*loads, (body.buffer, ())]}
        if not names and (tile := transposed_tensor(loads, axes)) is not None:
            choices = share_tiles(schedule, block, *tile)
        else:  # a vector has no lanes that a condition tells apart
            first = max((place for place, axis in enumerate(axes, 1) if hash(axis.var) in names), default=0)
            runs = {
                count: run_length(loads, axes, strides, count) for count in range(1, len(axes) - first + 1)
            }
            count = max(runs, key=runs.__getitem__, default=1)
            choices = share_vectors(schedule, block, runs.get(count, 1), axes[-count])
        # Bytes of all tensors for each element of the result
        yield blocks.describe(schedule, KIND, choices, bytes=sum(sizes.values()))


def share_vectors(schedule: Any, block: Any, run: int, first: Any) -> list[str]:
    """Let neighbouring threads write neighbouring vectors along the axes from `first` on,
    which divide runs of `run` elements. Return the names of the choices."""
    statement, loops = schedule.get(block), schedule.get_loops(block)
    widest = max(element_bytes(str(region.source.dtype)) for region in (*statement.reads, *statement.writes))
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
    """Move tiles through shared memory; return the choices' names. Elements of `source` are
    neighbours along `across`, in runs of `run`; elements of the result along `along`."""
    statement = schedule.get(block)
    size, result_size = (int(element_bytes(str(x.dtype))) for x in (source, statement.writes[0].source))
    index = [hash(region.source) for region in statement.reads].index(hash(source))
    axes, run_written = list(statement.iter_vars), prod(map(extent, along))
    batch = [axis for axis in axes if axis not in across and axis not in along]
    schedule.transform_block_layout(block, blocks.fusion(axes, [batch, across, along]))
    copy = schedule.reindex(block, ("read", index))
    registers = schedule.reindex(copy, ("read", 0))
    for stage, scope in ((copy, "shared"), (registers, "local")):
        schedule.transform_layout(stage, ("write", 0), lambda *axes: (*axes[:-2], axes[-1], axes[-2]))
        schedule.set_scope(stage, 0, scope)
    result = schedule.reindex(block, ("write", 0))
    schedule.set_scope(block, 0, "local")
    widest = blocks.VECTOR_BYTES // max(size, result_size)
    lanes = blocks.sample(schedule, *blocks.vectors(run_written, widest))
    threads, tiles = blocks.sample(schedule, *_THREADS[:3]), blocks.sample(schedule, 1, 2, 4)
    lanes_read = blocks.sample(schedule, *blocks.vectors(run, blocks.VECTOR_BYTES // size))
    *outer, column, row = schedule.get_loops(result)
    grid_column, column = schedule.split(column, [None, BANKS * BANK_BYTES // size])
    grid_row, tile, row = schedule.split(row, [None, tiles, BANKS])
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
    schedule.compute_at(registers, thread, preserve_unit_loops=True)
    schedule.vectorize(schedule.fuse(*schedule.get_loops(registers)[-2:]))
    for loop in (step, copy_step):
        schedule.unroll(loop)
    schedule.storage_align(copy, 0, -2, BANKS * BANK_BYTES // size, BANK_BYTES // size)
    return ["lanes", "threads", "tiles of a block", "lanes of loads"]


def run_length(loads: Sequence[Any], axes: Sequence[Any], strides: Sequence[int], count: int) -> int:
    """Return what the lengths of vectors along the last `count` axes must divide."""
    runs = [prod(map(extent, axes[-count:]))]
    for buffer, indices in loads:
        steps, alignment = blocks.steps_of(buffer, indices, axes, count)
        if set(steps[-count:]) != {0}:
            runs.append(alignment if steps[-count:] == strides[-count:] else 1)
    return gcd(*runs)


def transposed_tensor(
    loads: Sequence[Any], axes: Sequence[Any]
) -> tuple[Any, Sequence[Any], Sequence[Any], int] | None:
    """Return the first tensor whose neighbours differ from the result's, the axes of both
    tensors' neighbours, and what vectors' lengths must divide; None if there is none."""
    for buffer, indices in loads:
        maybe_steps, first = blocks.steps_of(buffer, indices, axes, len(axes))
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
