"""Sums over small windows without output channels: depthwise convolutions and pooling.

Each thread computes neighbouring rows, and columns if channels are innermost. It reads all
elements of their windows once, to registers, and pads them there. Neighbouring threads read
neighbours in memory, so overlapping windows meet in the cache of their multiprocessor.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import prod
from typing import Any, Final

from tvm.tirx import IterVar

from mallorn.core.values.machine import element_bytes
from mallorn.workers.tvm.cuda_sketches.blocks import (
    REFUSED,
    VECTOR_BYTES,
    bind,
    child_blocks,
    describe,
    inline_pointwise,
    is_sum,
    open_schedule,
    reads_of,
    sample,
    vector_read,
    vectors,
)
from mallorn.workers.tvm.program_blocks import extent, variables

KIND: Final = "window"
_LARGEST_WINDOW: Final = 128  # terms of a sum, which are all unrolled
_BOUND: Final = 4  # loops that are the grid's and the threads'
_OWN: Final = (1, 2, 4)  # neighbouring results of a thread, along an axis that windows move along
_THREADS: Final = ((1, 2, 4), (1, 2, 4, 8), (8, 16, 32, 64))  # along the last three axes


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield a schedule with open choices if the program sums over windows."""
    with suppress(*REFUSED):
        schedule = open_schedule(module)
        (block,) = (each for each in child_blocks(schedule) if is_sum(schedule, each))
        statement = schedule.get(block)
        axes = [axis for axis in statement.iter_vars if axis.iter_type == IterVar.DataPar]
        window = {
            hash(axis.var): extent(axis)
            for axis in statement.iter_vars
            if axis.iter_type != IterVar.DataPar and extent(axis) > 1
        }
        spatial = {hash(axis.var) for axis in axes if extent(axis) > 1}
        loads = reads_of(schedule, block)
        image = max(loads, key=lambda load: len(variables(*load.indices) & spatial))
        moving = [names for names in map(variables, image.indices) if names & window.keys()]
        along = frozenset[int]().union(*moving) & spatial
        others = variables(*(index for load in loads if load is not image for index in load.indices))
        if (
            not window
            or prod(window.values()) > _LARGEST_WINDOW
            or not all(len(names & window.keys()) == len(names & spatial) == 1 for names in moving)
            or len(moving) < len(window)
            or not spatial <= variables(*image.indices)
            or along & others
        ):
            return
        blocks = inline_pointwise(schedule, image.source)
        place = [is_sum(schedule, each) for each in blocks].index(True)
        if place > 1 or len(blocks) - place > 2:
            return
        choices = share_windows(schedule, blocks, place, image, [hash(axis.var) in along for axis in axes])
        yield describe(schedule, KIND, choices)


def share_windows(
    schedule: Any, blocks: list[Any], place: int, image: Any, are_moving: list[bool]
) -> list[str]:
    """Schedule the sum, which is the block at `place`, with the block that pads its image before
    it and an epilogue behind it, if there are any. `are_moving` tells for each axis whether
    windows move along it. Return the names of the choices."""
    block, last = blocks[place], blocks[-1]
    tensors = [read.source for read in schedule.get(block).reads]
    index = next(i for i, tensor in enumerate(tensors) if tensor.same_as(image.source))
    stored = schedule.get(last).writes[0].source
    widest = max(element_bytes(str(tensor.dtype)) for tensor in (*tensors, stored))
    padded = blocks[0] if place else schedule.cache_read(block, index, "local", consumer_blocks=[block])
    result = schedule.cache_write(last, 0, "local")
    loops = schedule.get_loops(result)
    if len(loops) != len(are_moving) or len(loops) < len(_THREADS):
        raise ValueError("the result has other axes than the sum")
    has_lanes = not are_moving[-1]
    choices, grids, threads, owns = ["lanes"] if has_lanes else [], list[Any](), list[Any](), list[Any]()
    lane = None
    if has_lanes:
        run = int(schedule.get(loops[-1]).extent)
        loops[-1], lane = schedule.split(
            loops[-1], [None, sample(schedule, *vectors(run, int(VECTOR_BYTES // widest)))]
        )
    names = ("first", "second", "last")
    for name, loop, counts, is_moving in zip(names, loops[-3:], _THREADS, are_moving[-3:], strict=True):
        factors = [sample(schedule, *counts)]
        choices.append(f"{name} threads")
        if is_moving and name != "last":
            factors.append(sample(schedule, *_OWN))
            choices.append(f"{name} own")
        grid, thread, *own = schedule.split(loop, [None, *factors])
        grids.append(grid)
        threads.append(thread)
        owns += own
    schedule.reorder(*loops[:-3], *grids, *threads, *owns, *([lane] if has_lanes else []))
    grid, thread = schedule.fuse(*loops[:-3], *grids), threads[-1]
    bind(schedule, [grid, *threads], "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    # nvcc unrolls the loops, not TVM.
    schedule.annotate(thread, "pragma_unroll_explicit", 0)
    for stage in (*reversed(blocks[place:]), padded):
        schedule.set_scope(stage, 0, "local")
        schedule.compute_at(stage, thread, preserve_unit_loops=True)
    count = len(are_moving)
    own_loops = schedule.get_loops(block)[_BOUND:]
    schedule.reorder(*own_loops[count:], *own_loops[:count])
    if has_lanes:
        schedule.vectorize(lane)
        schedule.vectorize(schedule.get_loops(padded)[-1])
        innermost = schedule.get(block).iter_vars[count - 1].var
        for other in range(len(tensors)):
            read = schedule.get(block).reads[other]
            if other != index and hash(innermost) in variables(read.region[-1].min):
                vector_read(schedule, block, other, own_loops[-1], 64)
    for stage in (padded, *blocks[place:], result):
        for loop in schedule.get_loops(stage)[_BOUND:]:
            if not (has_lanes and stage in (padded, result)):
                schedule.unroll(loop)
    schedule.decompose_reduction(block, own_loops[count])
    return choices
