"""Tensor functions of transposed convolutions: interleaved images, and sums of products."""

from typing import Any

from graphc.conv.deconvolution import Deconvolution, StridedAxis
from graphc.core.graph_rewriting import OUT_ELEMENTWISE_FUSABLE, numbers, parsed

INJECTIVE = 2  # TVM's pattern kind


def images_function(sizes: Deconvolution, weights: tuple[int, ...], dtype: str) -> Any:
    """All interleaved images, each pixel of which is a sum over some inputs."""
    high, wide, channels = sizes.high, sizes.wide, weights[4]
    row = f"vi + (va + {high.cut}) // {high.stride} + {high.first} + vr"
    column = f"vj + (vb + {wide.cut}) // {wide.stride} + {wide.first} + vs"
    channel = f"vo // {sizes.outputs // sizes.groups} * {channels} + vc" if sizes.groups > 1 else "vc"
    extents = *sizes.images, high.taps, wide.taps, channels
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers(sizes.data)}), "{dtype}"),
    w: T.Buffer(({numbers(weights)}), "{dtype}"),
    y: T.Buffer(({numbers(sizes.images)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    for n, i, a, j, b, o, r, s, c in T.grid({numbers(extents)}):
        with T.sblock("sums"):
            vn, vi, va, vj, vb, vo, vr, vs, vc = T.axis.remap("SSSSSSRRR", [n, i, a, j, b, o, r, s, c])
            with T.init():
                y[vn, vi, va, vj, vb, vo] = T.{dtype}(0)
            y[vn, vi, va, vj, vb, vo] = (
                y[vn, vi, va, vj, vb, vo] + x[vn, {row}, {column}, {channel}] * w[va, vb, vr, vs, vc, vo]
            )
""")


def sums_function(sizes: Deconvolution, dtype: str) -> Any:
    """Each result as the sum of what its inputs add to it."""
    high, wide = sizes.high, sizes.wide
    taps = [(down, across) for down in range(high.taps) for across in range(wide.taps)]
    terms = " + ".join(_term(sizes, *tap, dtype) for tap in taps)
    products = sizes.batch, high.size, wide.size, high.kernel * wide.kernel * sizes.outputs
    return parsed(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({numbers(products)}), "{dtype}"),
    y: T.Buffer(({numbers(sizes.result)}), "{dtype}"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {INJECTIVE}}})
    for n, i, j, o in T.grid({numbers(sizes.result)}):
        with T.sblock("sums"):
            vn, vi, vj, vo = T.axis.remap("SSSS", [n, i, j, o])
            y[vn, vi, vj, vo] = {terms}
""")


def _term(sizes: Deconvolution, down: int, across: int, dtype: str) -> str:
    """What one input adds to a result; zero beyond the images and the kernel."""
    row, weight_row, rows = _tap(sizes.high, "vi", down)
    column, weight_column, columns = _tap(sizes.wide, "vj", across)
    place = f"({weight_row} * {sizes.wide.kernel} + {weight_column}) * {sizes.outputs} + vo"
    value, conditions = f"x[vn, {row}, {column}, {place}]", " and ".join([*rows, *columns])
    return f"T.Select({conditions}, {value}, T.{dtype}(0))" if conditions else value


def _tap(axis: StridedAxis, result: str, tap: int) -> tuple[str, str, list[str]]:
    """Which input and which weight a tap takes, both inside their ranges, and when they count."""
    place, weight = (
        f"(({result} + {axis.cut}) // {axis.stride} - {tap})",
        f"(({result} + {axis.cut}) % {axis.stride} + {axis.stride * tap})",
    )
    conditions = [f"0 <= {place}", f"{place} < {axis.size}"]
    if axis.stride * (tap + 1) > axis.kernel:
        conditions.append(f"{weight} < {axis.kernel}")
    return f"T.max(0, T.min({place}, {axis.size - 1}))", f"T.min({weight}, {axis.kernel - 1})", conditions
