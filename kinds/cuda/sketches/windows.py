"""Sums over small windows without output channels: depthwise convolutions and pooling.

Each thread computes neighbouring rows, and columns if channels are innermost. It reads all
elements of their windows once, to registers, and pads them there. Neighbouring threads read
neighbours in memory, so overlapping windows meet in the cache of their multiprocessor.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import gcd, prod
from typing import Any, Final

from tvm.tirx import IterVar

from mallorn.core.values.machine import element_bytes
from mallorn.kinds.cuda.sketches import blocks
from mallorn.workers.tvm.programs.program_blocks import extent, variables

KIND: Final = "window"
_MOST_TERMS: Final = (25, 64)  # of a sum, all of which are unrolled, read at once or by rows
_BOUND: Final = 4  # loops that are the grid's and the threads'
_OWN: Final = (1, 2, 4)  # neighbouring results of a thread, along an axis that windows move along
_AXES: Final = ("first", "second", "last")  # of the last three
_THREADS: Final = ((1, 2, 4), (1, 2, 4, 8), (8, 16, 32, 64))  # along these axes


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program sums over windows: a thread reads
    the elements of a whole window at once, or those of one row after the other."""
    for by_rows in (False, True):
        with suppress(*blocks.REFUSED):
            if (schedule := schedule_windows(module, by_rows)) is not None:
                yield schedule


def schedule_windows(module: Any, by_rows: bool) -> Any | None:
    """Return a schedule of the program's only sum; None if it does not sum over windows."""
    schedule = blocks.open_schedule(module)
    (block,) = (child for child in blocks.child_blocks(schedule) if blocks.is_sum(schedule, child))
    axes, loads = list(schedule.get(block).iter_vars), blocks.reads_of(schedule, block)
    long = {hash(axis.var): extent(axis) for axis in axes if extent(axis) > 1}
    window = {hash(axis.var) for axis in axes if axis.iter_type != IterVar.DataPar} & long.keys()
    spatial = long.keys() - window
    image = max(loads, key=lambda load: len(variables(*load.indices) & spatial))
    moving = [names & long.keys() for names in map(variables, image.indices) if names & window]
    along = frozenset[int]().union(*moving) & spatial
    weights = [index for load in loads if load is not image for index in load.indices]
    is_small = 1 + by_rows <= len(window) and prod(long[name] for name in window) <= _MOST_TERMS[by_rows]
    is_window = all(len(names) == 2 and len(names & window) == 1 for names in moving)
    is_alone = spatial <= variables(*image.indices) and not along & variables(*weights)
    if not (is_small and is_window and is_alone and len(moving) == len(window)):
        return None
    stages = blocks.inline_pointwise(schedule, image.source)
    place = [blocks.is_sum(schedule, stage) for stage in stages].index(True)
    if place > 1 or len(stages) - place > 2:
        return None
    are_moving = [hash(axis.var) in along for axis in axes if axis.iter_type == IterVar.DataPar]
    choices = share_windows(schedule, stages, place, image.source, are_moving, by_rows)
    return blocks.describe(schedule, KIND, choices, by_rows=by_rows, is_moving=are_moving)


def share_windows(
    schedule: Any, stages: list[Any], place: int, image: Any, are_moving: list[bool], by_rows: bool
) -> list[str]:
    """Schedule the sum, which is the block at `place`, with the block that pads its image
    before it and an epilogue behind it, if there are any. `are_moving` tells for each axis
    whether windows move along it. Return the names of the choices."""
    block, last, count = stages[place], stages[-1], len(are_moving)
    tensors = [read.source for read in schedule.get(block).reads]
    index = next(number for number, tensor in enumerate(tensors) if tensor.same_as(image))
    patch = stages[0] if place else schedule.cache_read(block, index, "local", consumer_blocks=[block])
    result = schedule.cache_write(last, 0, "local")
    *outer, inner = schedule.get_loops(result)
    if len(outer) + 1 != count or count < len(_THREADS):
        raise ValueError("the result has other axes than the sum")
    lanes = list[Any]()
    if not are_moving[-1]:
        run = vector_lengths(schedule, (patch, *stages[place:], result), count - 1)
        inner, *lanes = schedule.split(inner, [None, blocks.sample(schedule, *run)])
    choices, tiles = ["lanes"] * len(lanes), list[list[Any]]()
    for number, loop in enumerate((*outer[-2:], inner)):
        factors = [blocks.sample(schedule, *_THREADS[number])]
        choices.append(f"{_AXES[number]} threads")
        if are_moving[number - 3] and number < 2:
            factors.append(blocks.sample(schedule, *_OWN))
            choices.append(f"{_AXES[number]} own")
        tiles.append(schedule.split(loop, [None, *factors]))
    grids, threads = [tile[0] for tile in tiles], [tile[1] for tile in tiles]
    own = [loop for tile in tiles for loop in tile[2:]]
    schedule.reorder(*outer[:-2], *grids, *threads, *own, *lanes)
    grid, thread = schedule.fuse(*outer[:-2], *grids), threads[-1]
    blocks.bind(schedule, [grid, *threads], "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
    schedule.annotate(thread, "pragma_unroll_explicit", 0)  # nvcc unrolls the loops, not TVM
    for stage in reversed(stages[place:]):
        schedule.set_scope(stage, 0, "local")
        schedule.compute_at(stage, thread, preserve_unit_loops=True)
    results = schedule.get_loops(block)[_BOUND:]
    results, window = results[:count], results[count:]
    schedule.reorder(*window, *results)
    schedule.set_scope(patch, 0, "local")
    rows = next(loop for loop in window if int(schedule.get(loop).extent) > 1)
    schedule.compute_at(patch, rows if by_rows else thread, preserve_unit_loops=True)
    own_tensors = [schedule.get(stage).writes[0].source for stage in (patch, block)]
    readers = [(block, window[-1])]
    readers += [] if last is block else [(last, schedule.get_loops(last)[-2])]
    for stage, loop in readers:
        for number, read in enumerate(schedule.get(stage).reads):
            if not any(map(read.source.same_as, own_tensors)):
                blocks.vector_read(schedule, stage, number, loop, blocks.VECTOR_BYTES)
    for stage in (patch, *stages[place:], result):
        loops = schedule.get_loops(stage)[_BOUND:]
        is_vector = bool(lanes) and stage in (patch, result)
        for loop in loops:
            (schedule.vectorize if is_vector and loop is loops[-1] else schedule.unroll)(loop)
    schedule.decompose_reduction(block, window[0])
    return choices


def vector_lengths(schedule: Any, stages: Sequence[Any], axis: int) -> list[int]:
    """Return the possible lengths of aligned vectors of all accesses along an axis of stages."""
    run, widest = 0, 1.0
    for stage in stages:
        axes = list(schedule.get(stage).iter_vars)
        channel = axes.pop(axis)
        run = gcd(run, extent(channel))
        for load in blocks.reads_of(schedule, stage):
            widest = max(widest, element_bytes(str(load.source.dtype)))
            steps, alignment = blocks.steps_of(load.source, load.indices, [*axes, channel], 1)
            run = gcd(run, alignment) if steps[-1] == 1 else run
    return blocks.vectors(run, int(blocks.VECTOR_BYTES // widest))
