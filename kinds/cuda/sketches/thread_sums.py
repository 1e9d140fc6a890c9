"""Sums that read each element once, with many threads per sum or group of neighbouring sums.

A program becomes c[b, s, n] = sum over r of f(large[b, s, r], other[b, n, r]), with loops
batch, sums, narrow (the few results that share an element of the large operand), depth.
Operands may be decoded from integers of few bits: their producers are inlined, and the
packed integers are read as vectors.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tvm.tirx import IterVar

from mallorn.core.values.machine import element_bytes
from mallorn.kinds.cuda.sketches import blocks
from mallorn.workers.tvm.programs.program_blocks import extent, variables

KIND: Final = "vector product"
DYNAMIC: Final = "shared.dyn"
_MOST_ROWS: Final = 8  # of a product with a vector
_THREADS: Final = (8, 16, 32, 64, 128, 256, 512)
_SUMS_OF_A_THREAD: Final = (1, 2, 4)
_MOST_OWN: Final = 8  # steps of the depth that a thread takes at a time


@dataclass(frozen=True, slots=True)
class ThreadSum:
    """A schedule of one sum in normal form."""

    schedule: Any
    block: Any  # with the loops batch, sums, narrow and depth
    epilogue: Any | None
    is_depth_innermost: bool  # whether neighbours in memory belong to the same sum
    vector: int  # neighbouring values of the large operand in 16 bytes
    narrow: int  # results that share an element of the large operand
    sums: int
    reads: int  # tensors that the block reads


def schedules(module: Any, _target: Any) -> Iterator[Any]:
    """Yield schedules with open choices if the program is a product with few rows."""
    yield from schedules_of_sums(module, KIND, most_narrow=_MOST_ROWS, is_product=True)


def schedules_of_sums(module: Any, kind: str, *, most_narrow: int, is_product: bool) -> Iterator[Any]:
    """Yield schedules of a program's only sum, by the order of its terms in memory."""
    for own in _SUMS_OF_A_THREAD:
        with suppress(*blocks.REFUSED):
            work = normalize(module, most_narrow)
            if work is None or (work.reads > 1) != is_product:
                return
            facts = {name: getattr(work, name) for name in ("narrow", "vector", "is_depth_innermost")}
            if not work.is_depth_innermost:
                yield blocks.describe(work.schedule, kind, share_columns(work), **facts)
                return
            if work.sums % own == 0:
                yield blocks.describe(work.schedule, kind, share_rows(work, own), own=own, **facts)


def normalize(module: Any, most_narrow: int) -> ThreadSum | None:
    """Return the program's only sum in normal form; None if the program is no such sum."""
    schedule = blocks.open_schedule(module)
    stages = blocks.inline_pointwise(schedule)
    if [blocks.is_sum(schedule, block) for block in stages] not in ([True], [True, False]):
        return None
    block = stages[0]
    axes, loads = list(schedule.get(block).iter_vars), blocks.reads_of(schedule, block)
    shapes = [map(int, load.source.shape) for load in loads]
    extents = [blocks.extent_of(schedule, block, load) for load in loads]
    sizes = list(zip(extents, map(prod, shapes), strict=True))
    large = loads[sizes.index(max(sizes))] if loads else None
    if large is None:
        return None
    names = variables(*large.indices)
    depth = [axis for axis in axes if axis.iter_type == IterVar.CommReduce]
    if not all(hash(axis.var) in names for axis in depth if extent(axis) > 1):
        return None
    own = [axis for axis in axes if axis not in depth and hash(axis.var) in names]
    narrow = [axis for axis in axes if axis not in depth and hash(axis.var) not in names]
    repeats, size = prod(map(extent, narrow)), int(prod(map(int, large.source.shape)))
    if repeats > most_narrow or blocks.extent_of(schedule, block, large) < size or not own:
        return None
    last = next((i for i in reversed(range(len(large.indices))) if variables(large.indices[i])), 0)
    innermost = [axis for axis in axes if hash(axis.var) in variables(large.indices[last])]
    is_depth_innermost = any(axis in depth for axis in innermost)
    packed_numbers = max(1, prod(map(extent, innermost)) // int(large.source.shape[last]))
    sums = own[-1] if is_depth_innermost else innermost[-1]
    batch = [axis for axis in own if axis is not sums]
    if prod(map(extent, batch)) > blocks.MOST_GRID_ROWS:
        return None
    schedule.transform_block_layout(block, blocks.fusion(axes, (batch, [sums], narrow, depth)))
    return ThreadSum(
        schedule,
        block,
        stages[1] if len(stages) == 2 else None,
        is_depth_innermost,
        vector=int(blocks.VECTOR_BYTES / element_bytes(str(large.source.dtype))) * packed_numbers,
        narrow=repeats,
        sums=extent(sums),
        reads=len({hash(load.source) for load in loads}),
    )


def share_rows(work: ThreadSum, own: int) -> list[str]:
    """Schedule a sum whose terms are neighbours in memory: threads of a warp read a sum's
    terms as vectors, and add their partial sums by shuffles. Each thread adds to `own`
    sums, which divides their number, because TVM loses the bound of a sum by several
    threads. Return the names of the choices."""
    schedule, block = work.schedule, work.block
    batch, sums, narrow, depth = schedule.get_loops(block)
    terms = int(schedule.get(depth).extent)
    lanes = blocks.sample(schedule, *blocks.vectors(terms, work.vector))
    steps, lanes = schedule.split(depth, [None, lanes])
    threads = blocks.sample(schedule, *(n for n in _THREADS if n <= max(8, terms // work.vector)))
    step, thread = schedule.split(steps, [None, threads])
    rows, sum_of_thread = schedule.split(sums, [None, own])
    grid, row = schedule.split(rows, schedule.sample_perfect_tile(rows, 2, 16))
    schedule.reorder(grid, row, sum_of_thread, narrow, step, lanes, thread)
    partial = schedule.rfactor(thread, 0)
    batch, grid, row, sum_of_thread, narrow, step, lanes, thread = schedule.get_loops(partial)
    schedule.reorder(grid, row, thread, step, sum_of_thread, narrow, lanes)
    blocks.bind(schedule, [batch, grid, row, thread], *blocks.GRID, "threadIdx.y", "threadIdx.x")
    _read_and_add(work, partial, step, [sum_of_thread, narrow, lanes])
    schedule.set_scope(partial, 0, "local")
    schedule.reverse_compute_at(block, grid, preserve_unit_loops=True)
    thread, _, row, narrow = schedule.get_loops(block)[2:]
    row, sum_of_thread = schedule.split(row, [None, own])
    schedule.reorder(sum_of_thread, narrow, row, thread)
    blocks.bind(schedule, [row, thread], "threadIdx.y", "threadIdx.x")
    if work.epilogue is not None:
        schedule.set_scope(block, 0, "shared")
        schedule.reverse_compute_at(work.epilogue, grid, preserve_unit_loops=True)
        element = schedule.fuse(*schedule.get_loops(work.epilogue)[2:])
        _, thread = schedule.split(element, [None, threads])
        blocks.bind(schedule, [thread], "threadIdx.x")
    return ["lanes", "threads of a sum", "sums: grid block", "unrolled steps"]


def share_columns(work: ThreadSum) -> list[str]:
    """Schedule a sum whose neighbours in memory belong to neighbouring sums: each thread
    reads a vector of sums, rows of threads share the depth and add their partial sums in
    shared memory. Return the names of the choices."""
    schedule, block = work.schedule, work.block
    batch, sums, narrow, depth = schedule.get_loops(block)
    terms = int(schedule.get(depth).extent)
    steps, own = schedule.split(depth, [None, blocks.sample(schedule, *blocks.vectors(terms, _MOST_OWN))])
    # With fewer steps than threads, some threads would leave their partial sums unset.
    most_shares = max(1, terms // _MOST_OWN)
    shares = blocks.sample(schedule, *(n for n in (1, 4, 8, 16, 32, 64, 128) if n <= most_shares))
    step, share = schedule.split(steps, [None, shares])
    widths = blocks.vectors(work.sums, min(work.vector, blocks.VECTOR_BYTES // 4))
    lanes = blocks.sample(schedule, *widths)
    runs = blocks.sample(schedule, *blocks.vectors(work.sums // widths[-1], work.vector // widths[-1]))
    groups, run, lane = schedule.split(sums, [None, runs, lanes])
    threads = blocks.sample(schedule, 2, 4, 8, 16, 32, 64)
    grid, thread = schedule.split(groups, [None, threads])
    schedule.reorder(grid, thread, run, lane, narrow, step, own, share)
    partial = schedule.rfactor(share, 0)
    batch, grid, thread, run, lane, narrow, step, own, share = schedule.get_loops(partial)
    schedule.reorder(grid, share, thread, step, own, narrow, run, lane)
    blocks.bind(schedule, [batch, grid, share, thread], *blocks.GRID, "threadIdx.y", "threadIdx.x")
    schedule.set_scope(partial, 0, DYNAMIC)
    copy = schedule.cache_write(partial, 0, "local")
    schedule.reverse_compute_at(copy, thread, preserve_unit_loops=True)
    schedule.vectorize(schedule.split(schedule.get_loops(copy)[-1], [None, lanes])[1])
    _read_and_add(work, partial, step, [own, narrow, run, lane])
    schedule.reverse_compute_at(block, grid, preserve_unit_loops=True)
    share, batch, column, narrow = schedule.get_loops(block)[2:]
    schedule.reorder(batch, narrow, column, share)
    element = schedule.fuse(batch, narrow, column)
    _, share_thread, thread = schedule.split(element, [None, shares, threads])
    blocks.bind(schedule, [share_thread, thread], "threadIdx.y", "threadIdx.x")
    if work.epilogue is not None:
        schedule.set_scope(block, 0, "local")
        schedule.reverse_compute_at(work.epilogue, thread, preserve_unit_loops=True)
    return [
        "steps of a thread at a time",
        "threads of a sum",
        "lanes",
        "vectors of a thread",
        "groups of a block",
        "unrolled steps",
    ]


def _read_and_add(work: ThreadSum, partial: Any, step: Any, inner: Sequence[Any]) -> None:
    schedule = work.schedule
    for index in range(len(schedule.get(partial).reads)):
        blocks.vector_read(schedule, partial, index, step, work.vector)
    schedule.annotate(step, "pragma_auto_unroll_max_step", blocks.sample(schedule, 1, 64, 512))
    for loop in inner:
        schedule.unroll(loop)
    schedule.decompose_reduction(partial, step)
