"""Transposes that move the last axis, tile by tile.

Column by column, every element costs a cache line, and the lines of a column share few sets of the nearest
cache. A tile of 16 x 16 elements reads sixteen lines and uses each completely.
"""

from typing import Any

from tvm import relax

from graphc.core import graph_rewriting

TILE = 16  # float32 elements in a cache line


def transposes() -> Any:
    """The pass that rewrites them if both axes are whole tiles."""
    return graph_rewriting.call_pass("Transposes", {"relax.permute_dims": _rewrite})


def _rewrite(builder: Any, call: Any) -> Any:
    last = call.ty.ndim - 1
    axes = list(map(int, call.attrs.axes or range(last, -1, -1)))
    sizes = list(map(int, call.ty.shape))
    across = axes.index(last)  # the new position of the source's last axis
    if call.ty.dtype != "float32" or across == last or sizes[across] % TILE or sizes[last] % TILE:
        return call
    function = _function(sizes, axes, across)
    return relax.call_tir(builder.add_func(function, "transpose_tiles"), [call.args[0]], call.ty)


def _function(sizes: list[int], axes: list[int], across: int) -> Any:
    """One block per tile; its last loop runs once, so that MetaSchedule vectorises it."""
    last = len(sizes) - 1
    tiled = (across, last)
    loops = [f"a{axis}" for axis in range(len(sizes))]
    extents = [size // TILE if axis in tiled else size for axis, size in enumerate(sizes)]
    start = [f"v{axis} * {TILE}" if axis in tiled else f"v{axis}" for axis in range(len(sizes))]
    to = list(start)
    to[across], to[last] = f"v{across} * {TILE} + i", f"v{last} * {TILE} + j"
    whole = [f"{place}:{place} + {TILE}" if axis in tiled else place for axis, place in enumerate(start)]
    source = [size for _, size in sorted(zip(axes, sizes, strict=True))]
    place, region = (", ".join(at for _, at in sorted(zip(axes, of, strict=True))) for of in (to, whole))
    return graph_rewriting.parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(x: T.Buffer({tuple(source)}, "float32"), y: T.Buffer({tuple(sizes)}, "float32")) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {graph_rewriting.OPAQUE}}})
    for {", ".join(loops)}, once in T.grid({", ".join(map(str, extents))}, 1):
        with T.sblock("tile"):
            {", ".join(f"v{axis}" for axis in range(len(sizes)))}, v_once = T.axis.remap(
                "{"S" * (len(sizes) + 1)}", [{", ".join(loops)}, once])
            T.reads(x[{region}])
            T.writes(y[{", ".join(whole)}])
            for i in T.unroll({TILE}):
                for j in T.vectorized({TILE}):
                    y[{", ".join(to)}] = x[{place}]
""")
