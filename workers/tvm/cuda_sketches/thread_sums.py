"""Sums that read each element once, with many threads per sum or per group of neighbouring sums.

A program is brought to the form c[b, s, n] = sum over r of f(large[b, s, r], other[b, n, r]), with
the loops batch, sums, narrow (the few results that share an element of the large operand) and depth.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tvm.tirx import IndexMap, IntImm, IterVar, Var

from mallorn.core.values.machine import element_bytes
from mallorn.workers.tvm.cuda_sketches.blocks import (
    VECTOR_BYTES,
    bind,
    child_blocks,
    extent_of,
    inline_pointwise,
    is_sum,
    open_schedule,
    reads_of,
    sample,
    vector_read,
)
from mallorn.workers.tvm.program_blocks import extent, variables

DYNAMIC: Final = "shared.dyn"


@dataclass(frozen=True, slots=True)
class ThreadSum:
    """A schedule of one sum in normal form."""

    schedule: Any
    block: Any  # with the loops batch, sums, narrow and depth
    epilogue: Any | None
    is_depth_innermost: bool  # whether neighbours in memory belong to the same sum
    vector: int  # neighbouring values of the large operand in 16 bytes
    narrow: int  # results that share an element of the large operand
    reads: int  # tensors that the block reads


def normalize(module: Any, most_narrow: int) -> ThreadSum | None:
    """Return the program's only sum in normal form; None if the program is no such sum."""
    schedule = open_schedule(module)
    blocks = inline_pointwise(schedule)
    sums = [block for block in blocks if is_sum(schedule, block)]
    if len(sums) != 1 or blocks.index(sums[0]) != 0 or len(blocks) > 2:
        return None
    (block,) = sums
    axes, loads = list(schedule.get(block).iter_vars), reads_of(schedule, block)
    large = max(loads, key=lambda load: (extent_of(schedule, block, load), _bytes(load)), default=None)
    if large is None:
        return None
    names = variables(*large.indices)
    depth = [axis for axis in axes if axis.iter_type == IterVar.CommReduce]
    if not all(hash(axis.var) in names for axis in depth if extent(axis) > 1):
        return None
    own = [axis for axis in axes if axis not in depth and hash(axis.var) in names]
    narrow = [axis for axis in axes if axis not in depth and hash(axis.var) not in names]
    repeats, size = prod(map(extent, narrow)), int(prod(map(int, large.source.shape)))
    if repeats > most_narrow or extent_of(schedule, block, large) < size or not own:
        return None
    last = next((i for i in reversed(range(len(large.indices))) if variables(large.indices[i])), 0)
    innermost = [axis for axis in axes if hash(axis.var) in variables(large.indices[last])]
    is_depth_innermost = any(axis in depth for axis in innermost)
    packed = max(1, prod(map(extent, innermost)) // int(large.source.shape[last]))
    sums = own[-1] if is_depth_innermost else innermost[-1]
    batch = [axis for axis in own if axis is not sums]
    schedule.transform_block_layout(block, _fusion(axes, (batch, [sums], narrow, depth)))
    return ThreadSum(
        schedule,
        block,
        blocks[1] if len(blocks) == 2 else None,
        is_depth_innermost,
        vector=int(VECTOR_BYTES / element_bytes(str(large.source.dtype))) * packed,
        narrow=repeats,
        reads=len({hash(load.source) for load in loads}),
    )


def _bytes(load: Any) -> float:
    return prod(map(int, load.source.shape)) * element_bytes(str(load.source.dtype))


def _fusion(axes: Sequence[Any], groups: Sequence[Sequence[Any]]) -> Any:
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


def share_rows(work: ThreadSum) -> list[str]:
    """Schedule a sum whose terms are neighbours in memory: threads of a warp read one sum's terms
    as vectors, and add their partial sums by shuffles. Return the names of the choices."""
    schedule, block = work.schedule, work.block
    batch, sums, narrow, depth = schedule.get_loops(block)
    steps, lanes = schedule.split(depth, schedule.sample_perfect_tile(depth, 2, work.vector))
    threads = sample(schedule, 8, 16, 32, 64, 128, 256, 512)
    step, thread = schedule.split(steps, [None, threads])
    grid, rows = schedule.split(sums, schedule.sample_perfect_tile(sums, 2, 16))
    each = sample(schedule, 1, 2, 4, 8)
    row, own = schedule.split(rows, [None, each])
    schedule.reorder(grid, row, own, narrow, step, lanes, thread)
    schedule.fuse(batch, grid)
    partial = schedule.rfactor(thread, 0)
    grid, row, own, narrow, step, lanes, thread = schedule.get_loops(partial)
    schedule.reorder(grid, row, thread, step, own, narrow, lanes)
    bind(schedule, [grid, row, thread], "blockIdx.x", "threadIdx.y", "threadIdx.x")
    _read_and_add(work, partial, step, [own, narrow, lanes])
    schedule.set_scope(partial, 0, "local")
    schedule.reverse_compute_at(block, grid, preserve_unit_loops=True)
    _, thread, _, row, narrow = schedule.get_loops(block)
    row, own = schedule.split(row, [None, each])
    schedule.reorder(own, narrow, row, thread)
    bind(schedule, [row, thread], "threadIdx.y", "threadIdx.x")
    if work.epilogue is not None:
        schedule.set_scope(block, 0, "shared")
        schedule.reverse_compute_at(work.epilogue, grid, preserve_unit_loops=True)
        element = schedule.fuse(*schedule.get_loops(work.epilogue)[1:])
        _, thread = schedule.split(element, [None, threads])
        bind(schedule, [thread], "threadIdx.x")
    return ["depth: steps lanes", "threads of a sum", "sums: grid block", "sums of a thread", "unrolled steps"]


def share_columns(work: ThreadSum) -> list[str]:
    """Schedule a sum whose neighbours in memory belong to neighbouring sums: each thread reads a
    vector of sums, rows of threads share the depth and add their partial sums in shared memory.
    Return the names of the choices."""
    schedule, block = work.schedule, work.block
    batch, sums, narrow, depth = schedule.get_loops(block)
    steps, own = schedule.split(depth, schedule.sample_perfect_tile(depth, 2, 8))
    shares = sample(schedule, 1, 4, 8, 16, 32, 64, 128)
    step, share = schedule.split(steps, [None, shares])
    groups, lanes = schedule.split(sums, schedule.sample_perfect_tile(sums, 2, work.vector))
    threads = sample(schedule, 2, 4, 8, 16, 32, 64)
    grid, thread = schedule.split(groups, [None, threads])
    schedule.reorder(grid, thread, lanes, narrow, step, own, share)
    schedule.fuse(batch, grid)
    partial = schedule.rfactor(share, 0)
    grid, thread, lanes, narrow, step, own, share = schedule.get_loops(partial)
    schedule.reorder(grid, share, thread, step, own, narrow, lanes)
    bind(schedule, [grid, share, thread], "blockIdx.x", "threadIdx.y", "threadIdx.x")
    schedule.set_scope(partial, 0, DYNAMIC)
    copy = schedule.cache_write(partial, 0, "local")
    schedule.reverse_compute_at(copy, thread, preserve_unit_loops=True)
    _read_and_add(work, partial, step, [own, narrow, lanes])
    schedule.reverse_compute_at(block, grid, preserve_unit_loops=True)
    _, share, *results = schedule.get_loops(block)
    schedule.reorder(*results, share)
    _, share_thread, thread = schedule.split(schedule.fuse(*results), [None, shares, threads])
    bind(schedule, [share_thread, thread], "threadIdx.y", "threadIdx.x")
    if work.epilogue is not None:
        schedule.set_scope(block, 0, "local")
        schedule.reverse_compute_at(work.epilogue, thread, preserve_unit_loops=True)
    return ["depth: steps own", "threads of a sum", "sums: groups lanes", "groups of a block", "unrolled steps"]


def _read_and_add(work: ThreadSum, partial: Any, step: Any, inner: Sequence[Any]) -> None:
    schedule = work.schedule
    for index in range(len(schedule.get(partial).reads)):
        vector_read(schedule, partial, index, step, work.vector)
    schedule.annotate(step, "pragma_auto_unroll_max_step", sample(schedule, 1, 64, 512))
    for loop in inner:
        schedule.unroll(loop)
    schedule.decompose_reduction(partial, step)
