"""The schedule rule of depthwise convolutions in strips: those of `mallorn.depthwise` and `mallorn.taps`.

All of it is in one loop over strips of rows and groups of channels, which the cores share: row after row, of
a pointwise convolution if there is one, is padded, and the depthwise one follows once the strip is whole.
"""

from typing import Any

import tvm

from graphc.conv.fuse_pointwise_into_depthwise import STRIPS, WIDTH
from graphc.core.graph_rewriting import (
    LANES,
    SUGGESTS,
    extent_of,
    inline_all_but,
    largest_factor,
    split_in_two,
)

# Limits of what a search may try, and what is taken before one.
MAX_ROWS, CACHE_BYTES = 64, 1 << 18  # of a strip, and what is kept of it
MAX_ROW, ROW = 16, 8  # results of a row that are summed side by side, in registers
MAX_VECTORS, VECTORS = 8, 2  # of channels, beside them
MAX_INPUTS, INPUTS = 64, 8  # of a pointwise sum, unrolled


def strips(schedule: Any, block: Any) -> list[Any]:
    """A strip of rows and some vectors of channels of everything, one behind the other."""
    (padded,) = schedule.get_producers(block)
    pointwise = schedule.get_producers(padded)
    schedule = inline_all_but(schedule, [*pointwise, padded, block])
    groups, tile = _tile_window(schedule, block, padded)
    schedule.compute_at(padded, groups, preserve_unit_loops=True)
    *_, rows, _, channels = schedule.get_loops(padded)
    schedule.split(channels, tile)
    for sums in pointwise:
        schedule.compute_at(sums, rows, preserve_unit_loops=True)
        _tile_sums(schedule, sums, tile)
    schedule.annotate(block, SUGGESTS, 1)
    return [schedule]


def _tile_window(schedule: Any, block: Any, padded: Any) -> tuple[Any, list[Any]]:
    """Of the depthwise convolution and what follows; the loop over channels, and the factors inside it."""
    followers = schedule.get_consumers(block)
    last = followers[0] if followers else block
    batch, rows, row, channels, *window = schedule.get_loops(last)
    width = int(schedule.get(block).annotations.get(WIDTH, LANES))
    channels, lanes = schedule.split(channels, [extent_of(schedule, channels) // width, width])
    wanted = _three(extent_of(schedule, channels))
    factors = schedule.sample_perfect_tile(channels, 3, MAX_VECTORS, wanted)
    groups, tiles, vectors = schedule.split(channels, factors)
    _, high, wide, _ = schedule.get_loops(padded)
    channel_bytes = 4 * extent_of(schedule, high) * extent_of(schedule, wide)
    strip_bytes = channel_bytes * wanted[1] * wanted[2] * width
    fitting = CACHE_BYTES * extent_of(schedule, rows) // strip_bytes
    strips, rows = split_in_two(schedule, rows, MAX_ROWS, fitting)
    parts, row = split_in_two(schedule, row, MAX_ROW, ROW)
    schedule.reorder(batch, strips, groups, rows, parts, tiles, vectors, *window, row, lanes)
    if followers:
        schedule.compute_at(block, vectors, preserve_unit_loops=True)
        *_, row, lanes, high, wide = schedule.get_loops(block)
        schedule.reorder(high, wide, row, lanes)
    return groups, [*factors[1:], width]


def _tile_sums(schedule: Any, pointwise: Any, tile: list[Any]) -> None:
    *_, row, channels, inputs = schedule.get_loops(pointwise)
    parts, row = split_in_two(schedule, row, MAX_ROW, ROW)
    tiles, vectors, lanes = schedule.split(channels, tile)
    steps, inputs = split_in_two(schedule, inputs, MAX_INPUTS, INPUTS)
    schedule.reorder(parts, tiles, steps, inputs, row, vectors, lanes)


def _three(vectors: int) -> list[int]:
    """Channels of a strip: as many vectors as are summed side by side, two such tiles of them."""
    inner = largest_factor(vectors, VECTORS)
    tiles = largest_factor(vectors // inner, 2)
    return [vectors // inner // tiles, tiles, inner]


tvm.register_global_func(f"s_tir.meta_schedule.cpu.{STRIPS}", strips, override=True)
