"""Sums of rows or columns, and chains of them over the same rows (softmax, norms).

In a chain, which is one kernel, groups of threads compute whole rows. Each sum is a block of
partial sums per thread and a sum over threads by shuffles, and the last block computes the
elements. All threads of a row keep its sums. The row stays in shared memory, or is read again.
"""

from collections.abc import Iterator
from contextlib import suppress
from math import gcd, prod
from typing import Any, Final

from mallorn.core.values.machine import element_bytes
from mallorn.kinds.cuda.sketches import blocks
from mallorn.kinds.cuda.sketches.thread_sums import schedules_of_sums
from mallorn.workers.tvm.programs.program_blocks import extent, variables

KIND: Final = "row reduction"
_THREADS: Final = (16, 32, 64, 128, 256, 512, 1024)
_MOST_ROWS: Final = 16  # of a thread block
_KEPT: Final = "shared.dyn"
_THREAD: Final = ("threadIdx.y", "threadIdx.x")


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program reduces rows or columns."""
    yield from schedules_of_sums(module, KIND, most_narrow=1, is_product=False)
    for is_kept in (False, True):
        with suppress(*blocks.REFUSED):
            schedule = schedule_chain(module, is_kept)
            if schedule is not None:
                yield schedule


def schedule_chain(module: Any, is_kept: bool) -> Any | None:
    """Return the schedule of a chain of sums over rows; None for other programs."""
    schedule = blocks.open_schedule(module)
    *sums, last = blocks.inline_pointwise(schedule)
    are_sums = [blocks.is_sum(schedule, block) for block in (*sums, last)]
    if not sums or are_sums != [True] * len(sums) + [False]:
        return None
    results = {hash(schedule.get(block).writes[0].source) for block in sums}
    loads = [load for load in blocks.reads_of(schedule, last) if hash(load.source) in results]
    in_rows = variables(*(index for load in loads for index in load.indices))
    shapes, source = set(), ""
    for block in (*sums, last):
        axes = list(schedule.get(block).iter_vars)
        is_row = [
            axis.iter_type == axis.DataPar and (block is not last or hash(axis.var) in in_rows)
            for axis in axes
        ]
        rows = [axis for axis, flag in zip(axes, is_row, strict=True) if flag]
        columns = [axis for axis, flag in zip(axes, is_row, strict=True) if not flag]
        if not rows or not columns:
            return None
        shapes.add((*map(extent, rows), 0, *map(extent, columns)))
        inner = extent(columns[-1])
        varying = {hash(axis.var) for axis in axes if extent(axis) > 1}
        wide = [
            load
            for load in blocks.reads_of(schedule, block)
            if hash(load.source) not in results and variables(*load.indices) >= varying
        ]
        if not wide or hash(columns[-1].var) not in variables(wide[0].indices[-1]):
            return None  # neighbours in memory belong to different rows
        source = str(wide[0].source.name)
        batch, cells = prod(map(extent, rows[:-1])), prod(map(extent, columns))
        groups = rows[:-1], rows[-1:], columns
        schedule.transform_block_layout(block, blocks.fusion(axes, groups))
    if len(shapes) > 1 or batch > blocks.MOST_GRID_ROWS:
        return None
    most_lanes = int(blocks.VECTOR_BYTES / element_bytes(str(wide[0].source.dtype)))
    row_tensor = source if is_kept else ""
    choices = share_chain(schedule, sums, last, row_tensor, gcd(cells, inner), most_lanes)
    return blocks.describe(schedule, KIND, choices, is_kept=is_kept, sums=len(sums))


def share_chain(
    schedule: Any, sums: list[Any], last: Any, row_tensor: str, run: int, most_lanes: int
) -> list[str]:
    """Schedule the blocks of a chain. `row_tensor` names the tensor whose rows are kept in
    shared memory, `run` is how many neighbours in memory a row has at least. Return the
    names of the choices."""
    batch, rows, columns = schedule.get_loops(last)
    cells = int(schedule.get(columns).extent)
    widths = blocks.vectors(run, most_lanes)
    lanes = blocks.sample(schedule, *widths)
    if row_tensor:
        fitting = [n for n in _THREADS if n <= max(16, cells)]
    else:  # moving a block loses the bounds of its loops: vectors of all threads must fill a row
        fitting = [n for n in _THREADS if cells % (n * widths[-1]) == 0]
    threads = blocks.sample(schedule, *fitting)
    tile = schedule.sample_perfect_tile(rows, 2, _MOST_ROWS)
    grid, row = schedule.split(rows, tile)
    blocks.bind(schedule, [batch, grid], *blocks.GRID)
    copy = None
    if row_tensor:
        reads = [str(read.source.name) for read in schedule.get(sums[0]).reads]
        index, readers = reads.index(row_tensor), [*sums, last]
        copy = schedule.cache_read(sums[0], index, _KEPT, consumer_blocks=readers)
    unrolled = blocks.sample(schedule, 1, 64, 512)
    partials = []  # of each sum, the block of partial sums, one per thread
    for block in [] if row_tensor else sums:
        steps, lane = schedule.split(schedule.get_loops(block)[-1], [None, lanes])
        step, thread = schedule.split(steps, [None, threads])
        schedule.reorder(step, lane, thread)
        partials.append(schedule.rfactor(thread, 0))
    for index in reversed(range(len(sums))):
        schedule.set_scope(sums[index], 0, "local")
        schedule.compute_at(sums[index], grid, preserve_unit_loops=True)
        if partials:
            schedule.set_scope(partials[index], 0, "local")
            schedule.compute_at(partials[index], grid, preserve_unit_loops=True)
    for partial in partials:
        thread, batch, own_row, step, lane = schedule.get_loops(partial)[2:]
        schedule.reorder(own_row, thread, batch, step, lane)
        blocks.bind(schedule, [own_row, thread], *_THREAD)
        _read_rows(schedule, partial, step, most_lanes)
        schedule.annotate(step, "pragma_auto_unroll_max_step", unrolled)
        schedule.unroll(lane)
        schedule.decompose_reduction(partial, step)
    for block in sums:
        if partials:
            thread, batch, own_row = schedule.get_loops(block)[2:]
            schedule.reorder(batch, own_row, thread)
        else:
            batch, own_row, column = schedule.get_loops(block)[2:]
            step, thread = schedule.split(column, [None, threads])
            schedule.annotate(step, "pragma_auto_unroll_max_step", unrolled)
            schedule.reorder(batch, own_row, thread, step)
        blocks.bind(schedule, [own_row, thread], *_THREAD)
    steps, lane = schedule.split(columns, [None, lanes])
    step, thread = schedule.split(steps, [None, threads])
    schedule.reorder(row, thread, step, lane)
    blocks.bind(schedule, [row, thread], *_THREAD)
    result = schedule.cache_write(last, 0, "local")
    schedule.reverse_compute_at(result, step, preserve_unit_loops=True)
    schedule.vectorize(schedule.get_loops(result)[-1])
    _read_rows(schedule, last, step, most_lanes)
    schedule.unroll(lane)
    if copy is not None:
        schedule.compute_at(copy, grid, preserve_unit_loops=True)
        element = schedule.fuse(*schedule.get_loops(copy)[2:])
        steps, lane = schedule.split(element, [None, lanes])
        _, row, thread = schedule.split(steps, [None, tile[1], threads])
        blocks.bind(schedule, [row, thread], *_THREAD)
        schedule.vectorize(lane)
    return ["lanes", "threads of a row", "rows: grid block", "unrolled steps"]


def _read_rows(schedule: Any, block: Any, step: Any, most_lanes: int) -> None:
    """Read the block's operands in a step of the row as vectors, except sums of the row."""
    axes = list(schedule.get(block).iter_vars)
    first_column = 2 if len(axes) == 3 else 3  # after a thread's number, the batch and the row
    columns = {hash(axis.var) for axis in axes[first_column:]}
    for index, read in enumerate(schedule.get(block).reads):
        if variables(*(bound.min for bound in read.region)) & columns:
            blocks.vector_read(schedule, block, index, step, most_lanes)
