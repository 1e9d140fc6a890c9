"""Transpose the last axis tile by tile.

Reading column by column loads one cache line per element, and the lines of a column compete
for few cache sets. A tile of 16 x 16 elements reads 16 lines and uses each completely.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mallorn.graphc.core.graph_pass import Graph, Leave, Pass
from mallorn.graphc.core.graph_rewriting import OPAQUE, parse_tvmscript, permutation, sizes_of

TILE = 16  # float32 elements in a cache line


@dataclass(frozen=True)
class Permutation:
    """Order of the source's axes, and the axis of the result that was the source's last."""

    axes: tuple[int, ...]
    across: int


class TileTransposes(Pass[Permutation]):
    """Transposes the last axis in tiles of 16 x 16, if the sizes are multiples of 16."""

    name, match = "tile_transposes", ("relax.permute_dims",)
    after = ("fuse_transposes_into_batched_matmul",)

    def check(self, call: Any, g: Graph) -> Permutation:
        sizes, last = sizes_of(call), call.ty.ndim - 1
        axes = permutation(call)
        across = axes.index(last)
        if across == last:
            raise Leave("the transpose keeps the last axis in place")
        if sizes[across] % TILE or sizes[last] % TILE:
            raise Leave(f"the sizes of the swapped axes are not multiples of {TILE}")
        return Permutation(axes, across)

    def rewrite(self, call: Any, facts: Permutation, g: Graph) -> Any:
        sizes, axes, across = sizes_of(call), facts.axes, facts.across
        last = len(sizes) - 1
        loops, values = ([f"{kind}{axis}" for axis in range(len(sizes))] for kind in "av")
        extents, targets, regions = [], [], []  # by axis of the result
        for axis, size in enumerate(sizes):
            is_tiled = axis in (across, last)
            extents.append(str(size // TILE if is_tiled else size))
            start = f"v{axis} * {TILE}" if is_tiled else f"v{axis}"
            regions.append(f"{start}:{start} + {TILE}" if is_tiled else start)
            targets.append(f"{start} + {'j' if axis == last else 'i'}" if is_tiled else start)
        lists: tuple[Sequence[Any], ...] = (sizes, targets, regions)
        source_sizes, places, source_regions = (
            [value for _, value in sorted(zip(axes, by_axis, strict=True))] for by_axis in lists
        )
        # A block per tile, and a dummy last loop for MetaSchedule.
        function = parse_tvmscript(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(source_sizes)}, "float32"), y: T.Buffer({sizes}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for {", ".join(loops)}, once in T.grid({", ".join(extents)}, 1):
        with T.sblock("tile"):
            {", ".join(values)}, v_once = T.axis.remap(
                "{"S" * (len(sizes) + 1)}", [{", ".join(loops)}, once])
            T.reads(x[{", ".join(source_regions)}])
            T.writes(y[{", ".join(regions)}])
            for i in T.unroll({TILE}):
                for j in T.vectorized({TILE}):
                    y[{", ".join(targets)}] = x[{", ".join(places)}]
""")
        return g.call_function("transpose_tiles", function, [call.args[0]], call.ty)
