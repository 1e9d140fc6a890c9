"""Transpose the last axis tile by tile.

In a transpose by columns every element costs a cache line, and the lines of a column share few
cache sets. A tile of 16 x 16 elements reads 16 lines and uses each completely.
"""

from dataclasses import dataclass
from typing import Any

from graphc.core.graph_pass import Graph, Leave, Pass
from graphc.core.graph_rewriting import OPAQUE, parsed, permutation, sizes_of

TILE = 16  # float32 elements in a cache line


@dataclass(frozen=True)
class Permutation:
    """The order of the source's axes, and which axis of the result is the source's last."""

    axes: tuple[int, ...]
    across: int


class TileTransposes(Pass[Permutation]):
    """Transposes the last axis tile by tile, if both axes consist of whole tiles."""

    name, match = "layout.tile_transposes", ("relax.permute_dims",)
    after = ("matmul.fuse_transposes",)

    def check(self, call: Any, g: Graph) -> Permutation:
        sizes, last = sizes_of(call), call.ty.ndim - 1
        axes = permutation(call)
        across = axes.index(last)
        if across == last:
            raise Leave("its last axis stays in place")
        if sizes[across] % TILE or sizes[last] % TILE:
            raise Leave(f"its axes are no whole tiles of {TILE}")
        return Permutation(axes, across)

    def rewrite(self, call: Any, facts: Permutation, g: Graph) -> Any:
        function = _function(list(sizes_of(call)), facts.axes, facts.across)
        return g.call_function("transpose_tiles", function, [call.args[0]], call.ty)


def _function(sizes: list[int], axes: tuple[int, ...], across: int) -> Any:
    """Build a function with a block per tile, and a dummy last loop for MetaSchedule."""
    last = len(sizes) - 1
    tiled = (across, last)
    loops = [f"a{axis}" for axis in range(len(sizes))]
    extents = [size // TILE if axis in tiled else size for axis, size in enumerate(sizes)]
    start = [f"v{axis} * {TILE}" if axis in tiled else f"v{axis}" for axis in range(len(sizes))]
    target = list(start)
    target[across], target[last] = f"v{across} * {TILE} + i", f"v{last} * {TILE} + j"
    block = [f"{place}:{place} + {TILE}" if axis in tiled else place for axis, place in enumerate(start)]
    source = [size for _, size in sorted(zip(axes, sizes, strict=True))]
    place, region = (
        ", ".join(index for _, index in sorted(zip(axes, indices, strict=True)))
        for indices in (target, block)
    )
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(source)}, "float32"), y: T.Buffer({tuple(sizes)}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OPAQUE}}})
    for {", ".join(loops)}, once in T.grid({", ".join(map(str, extents))}, 1):
        with T.sblock("tile"):
            {", ".join(f"v{axis}" for axis in range(len(sizes)))}, v_once = T.axis.remap(
                "{"S" * (len(sizes) + 1)}", [{", ".join(loops)}, once])
            T.reads(x[{region}])
            T.writes(y[{", ".join(block)}])
            for i in T.unroll({TILE}):
                for j in T.vectorized({TILE}):
                    y[{", ".join(target)}] = x[{place}]
""")
