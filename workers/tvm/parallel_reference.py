"""A simple schedule for large reference programs, so that any processor runs them in seconds.

Each element is summed in the order of the unscheduled program, so that results are
bit-identical.
"""

from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, Final

from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import IterVar, Var

from graphc.core.graph_rewriting import collect

# Blocks with fewer terms are not scheduled.
LARGE: Final = 2**22
# Tiling pays off if each input element is used in at least this many terms.
REUSE: Final = 16
# Row elements that are summed together (at least, at most), and rows that share their inputs.
LEAST_ROW, ROW, ROWS = 4, 64, 16


def parallel(mod: Any) -> Any:
    """Return the program with its large blocks parallelised and its large sums tiled."""
    schedule = Schedule(mod, error_render_level="none")
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        if _terms(schedule.get(block)) >= LARGE:
            try:
                _spread(schedule, block)
            except ScheduleError:  # the steps before the failing one stay; they are valid
                continue
    return schedule.mod


def _spread(schedule: Any, block: Any) -> None:
    stored, loops = schedule.get(block), schedule.get_loops(block)
    kinds = [axis.iter_type for axis in stored.iter_vars]
    if len(loops) != len(kinds):
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.DataPar]
    reduced = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.CommReduce]
    row, read = _row_axis(stored), [prod(map(int, region.source.shape)) for region in stored.reads]
    if not reduced or row is None or _terms(stored) < REUSE * max(read, default=1):
        schedule.parallel(schedule.fuse(*(spatial[:-1] or spatial)))
        return
    _store_along(schedule, block, stored, stored.iter_vars[row].var)
    columns, column = _split(schedule, loops[row], ROW)
    spatial.remove(loops[row])
    tile, outer = [column], [columns]
    if spatial:
        longest = max(spatial, key=lambda loop: int(schedule.get(loop).extent))
        rows, inner_row = _split(schedule, longest, ROWS)
        spatial.remove(longest)
        tile, outer = [inner_row, column], [*spatial, rows, columns]
    schedule.reorder(*outer, *reduced, *tile)
    schedule.parallel(schedule.fuse(*outer))
    schedule.vectorize(column)
    schedule.decompose_reduction(block, reduced[0])


def _terms(block: Any) -> int:
    return prod(int(axis.dom.extent) for axis in block.iter_vars)


def _split(schedule: Any, loop: Any, largest: int) -> Sequence[Any]:
    """Split a loop; the inner extent is the largest divisor of its extent up to `largest`."""
    factor = _divisor(int(schedule.get(loop).extent), largest)
    split: Sequence[Any] = schedule.split(loop, [None, factor])
    return split


def _divisor(extent: int, largest: int) -> int:
    return max(each for each in range(1, largest + 1) if extent % each == 0)


def _row_axis(block: Any) -> int | None:
    """Return the index of the axis along output rows; None if rows do not divide evenly."""
    last = block.writes[0].region[-1].min
    for index, axis in enumerate(block.iter_vars):
        if axis.var.same_as(last) and _divisor(int(axis.dom.extent), ROW) >= LEAST_ROW:
            return index
    return None


def _store_along(schedule: Any, block: Any, stored: Any, row: Any) -> None:
    """Copy inputs that an output row reads with a stride, so that it reads consecutively."""
    for index, region in enumerate(stored.reads):
        is_used = [any(var.same_as(row) for var in collect(part.min, Var)) for part in region.region]
        if any(is_used) and not is_used[-1]:
            copy = schedule.cache_read(block, index, "global")
            schedule.transform_layout(copy, ("write", 0), partial(_with_last, is_used.index(True)))
            schedule.parallel(schedule.get_loops(copy)[0])


def _with_last(position: int, *indices: Any) -> list[Any]:
    """Return the indices with the one at `position` moved to the end."""
    return [*indices[:position], *indices[position + 1 :], indices[position]]
