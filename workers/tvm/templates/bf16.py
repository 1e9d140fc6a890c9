"""Products with constant weights in bfloat16: two per lane and instruction, summed in float32.

Data is rounded before a product; sums stay float32. One instruction (`vdpbf16ps`) computes sixteen results,
so weights are laid out as it reads them: sixteen columns of two rows side by side.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.s_tir import TensorIntrin
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingWithIntrin, ReuseType
from tvm.target.codegen import target_has_features

rewriting = import_module(f"{__package__}.rewriting" if __package__ else "rewriting")
LANES, PAIR = 16, 2  # of the instruction
DOT = "mallorn_dot_bf16"
RULE = f"s_tir.meta_schedule.cpu.{DOT}"

_LLVM_DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"
# TVM keeps bfloat16 as integers on CPUs; this function tells LLVM that they are bfloat16.
LLVM = f"""
declare <16 x float> {_LLVM_DOT}(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr <16 x float> @{DOT}(<16 x float> %sums, <16 x i32> %x, <16 x i32> %w)
    alwaysinline nounwind "target-features"="+avx512f,+avx512bf16" {{
  %data = bitcast <16 x i32> %x to <32 x bfloat>
  %weights = bitcast <16 x i32> %w to <32 x bfloat>
  %out = call <16 x float> {_LLVM_DOT}(<16 x float> %sums, <32 x bfloat> %data, <32 x bfloat> %weights)
  ret <16 x float> %out
}}
"""
_BUFFERS = """
def main(
    x: T.Buffer((2,), "bfloat16", offset_factor=1),
    w: T.Buffer((16, 2), "bfloat16", offset_factor=1),
    y: T.Buffer((16,), "float32", offset_factor=1),
) -> None:
    with T.sblock("root"):
        T.reads(y[0:16], x[0:2], w[0:16, 0:2])
        T.writes(y[0:16])
"""
_MEANING = """
        for i, k in T.grid(16, 2):
            with T.sblock("update"):
                vi, vk = T.axis.remap("SR", [i, k])
                y[vi] = y[vi] + T.Cast("float32", x[vk]) * T.Cast("float32", w[vi, vk])
"""
_INSTRUCTION = f"""
        T.attr(0, "pragma_import_llvm", {LLVM!r})
        y[T.ramp(T.int32(0), 1, 16)] = T.call_pure_extern(
            "float32x16",
            "{DOT}",
            y.vload([0], "float32x16"),
            T.broadcast(T.reinterpret("int32", x.vload([0], "bfloat16x2")), 16),
            T.reinterpret("int32x16", w.vload([0, 0], "bfloat16x32")),
        )
"""


_HEAD = "@T.prim_func(s_tir=True)" + _BUFFERS
TensorIntrin.register(
    DOT, tvm.script.from_source(_HEAD + _MEANING), tvm.script.from_source(_HEAD + _INSTRUCTION), override=True
)

# MetaSchedule's structure for CPUs.
_TILE = MultiLevelTilingWithIntrin(
    DOT,
    structure="SSRSRS",
    max_innermost_factor=64,
    reuse_write=ReuseType(req="may", levels=[1, 2], scope="global"),
)

NARROW = "bfloat16"
INPUT = f"vko * {PAIR} + vki"


@dataclass(frozen=True)
class Sums:
    """A product: the data and weights that each element of the result sums over.

    Its axes are `vi0`, `vi1` and so on, outputs last. `kernel` is the number of weight matrices: one for each
    place `vr0`, `vr1` ... of a window, all summed, or one for each `vi0` of a stack.
    """

    data: tuple[int, ...]
    result: tuple[int, ...]
    inputs: int
    read: tuple[str, ...]
    kernel: tuple[int, ...] = ()
    stacked: bool = False

    @property
    def window(self) -> list[str]:
        return [] if self.stacked else [f"r{axis}" for axis in range(len(self.kernel))]


def bf16() -> Any:
    """The pass that rewrites every product with constant weights whose sizes fit the instruction."""
    return rewriting.graph_pass("Bf16", _rewrite)


def _rewrite(builder: Any, graph: Any) -> Any:
    target = tvm.target.Target.current()
    if target is None or not target_has_features("avx512bf16", target):
        raise ValueError("the target's processor has no products of bfloat16 (avx512bf16)")
    graph = rewriting.rewrite_known(graph, "relax.matmul", lambda call: _product(builder, call))
    values = relax.analysis.get_var2val(graph)
    return rewriting.rewrite_known(graph, "relax.nn.conv2d", lambda call: _convolution(builder, values, call))


def _product(builder: Any, call: Any) -> Any:
    """A product of rows with a matrix, or of stacks of both if the data is rounded already."""
    data, weights = call.args
    sizes, result = rewriting.sizes_of(data), rewriting.sizes_of(call)
    stacked = data.ty.dtype == NARROW and weights.ty.ndim == len(sizes) == 3
    if not _fits(call) or sizes[-1] % PAIR or not (stacked or weights.ty.ndim == 2 <= len(sizes)):
        return call
    read = *(f"vi{axis}" for axis in range(len(sizes) - 1)), INPUT
    kernel = result[:1] if stacked else ()
    sums = Sums(sizes, result, sizes[-1], read, kernel, stacked)
    return _call(builder, "bf16_matmul", _rounded(data), weights.value.numpy(), sums)


def _convolution(builder: Any, values: Mapping[Any, Any], call: Any) -> Any:
    data, weights = call.args
    attrs = call.attrs
    if not rewriting.channels_last(call) or call.ty.dtype != "float32":
        return call
    if 1 < int(attrs.groups) == rewriting.sizes_of(data)[-1]:
        return _depthwise(call)
    if not _fits(call) or any(int(number) != 1 for number in (*attrs.dilation, attrs.groups)):
        return call
    if rewriting.sizes_of(data)[-1] % PAIR == 0:
        return _window(builder, call, weights.value.numpy())
    planes = _planes(values, data)
    return call if planes is None else _window_of_planes(builder, call, planes, weights.value.numpy())


def _depthwise(call: Any) -> Any:
    """A depthwise convolution: no sums for the instruction, but half as much to read."""
    attrs, factors = call.attrs, (_rounded(call.args[0]), relax.const(call.args[1].value.numpy(), NARROW))
    names = "strides", "padding", "dilation", "groups", "data_layout", "kernel_layout", "out_layout"
    return relax.op.nn.conv2d(*factors, **{name: getattr(attrs, name) for name in names}, out_dtype="float32")


def _window(builder: Any, call: Any, weights: Any) -> Any:
    """A convolution whose inputs are pairs at every place of the window."""
    data = call.args[0]
    padded, sizes = rewriting.padded(_rounded(data), rewriting.sizes_of(data), call.attrs.padding)
    down, across = map(int, call.attrs.strides)
    read = "vi0", f"vi1 * {down} + vr0", f"vi2 * {across} + vr1", INPUT
    sums = Sums(sizes, rewriting.sizes_of(call), sizes[-1], read, weights.shape[:2])
    return _call(builder, "bf16_conv2d", padded, weights, sums)


def _planes(values: Mapping[Any, Any], data: Any) -> Any | None:
    """The data before the transpose from channel planes, if there was one."""
    transpose = rewriting.call_of(values, data, "relax.permute_dims")
    moved = transpose is not None and tuple(map(int, transpose.attrs.axes or ())) == (0, 2, 3, 1)
    return transpose.args[0] if transpose is not None and moved else None


def _window_of_planes(builder: Any, call: Any, planes: Any, weights: Any) -> Any:
    """A convolution of odd channels, as of a picture: pairs lie along the window's rows, zero-padded."""
    high, wide, channels, _ = weights.shape
    odd = wide % PAIR
    rows = np.pad(weights.transpose(2, 0, 1, 3), ((0, 0), (0, 0), (0, odd), (0, 0)))
    top, left, bottom, right = map(int, call.attrs.padding)
    batch, _, height, width = rewriting.sizes_of(planes)
    sizes = batch, channels, height + top + bottom, width + left + right + odd
    padded = relax.op.nn.pad(_rounded(planes), (0, 0, 0, 0, top, bottom, left, right + odd))
    down, across = map(int, call.attrs.strides)
    read = "vi0", "vr0", f"vi1 * {down} + vr1", f"vi2 * {across} + {INPUT}"
    sums = Sums(sizes, rewriting.sizes_of(call), wide + odd, read, (channels, high))
    return _call(builder, "bf16_conv2d", padded, rows, sums)


def _fits(call: Any) -> bool:
    """True if the weights are constant and the last vector of outputs is mostly used."""
    weights = call.args[1]
    constant = isinstance(weights, tvm.ir.GenericConst) and weights.ty.ndim >= 2
    return bool(
        constant and call.ty.dtype == "float32" and rewriting.mostly_whole(int(call.ty.shape[-1]), LANES)
    )


def _rounded(data: Any) -> Any:
    return data if data.ty.dtype == NARROW else relax.op.astype(data, NARROW)


def _call(builder: Any, name: str, data: Any, weights: Any, sums: Sums) -> Any:
    function = builder.add_func(_dot(sums), name)
    packed = relax.const(_packed(weights))
    return relax.call_tir(function, [data, packed], relax.TensorType(sums.result, "float32"))


def _packed(weights: Any) -> Any:
    """[..., inputs, outputs] as [outputs / 16, ..., inputs / 2, 16, 2], with zeros for missing outputs."""
    *kernel, inputs, outputs = weights.shape
    whole = np.pad(
        weights, [(0, 0)] * (len(kernel) + 1) + [(0, rewriting.whole_vectors(outputs, LANES) - outputs)]
    )
    split = whole.reshape(*kernel, inputs // PAIR, PAIR, -1, LANES)
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(split, -2, 0), -2, -1)).astype(ml_dtypes.bfloat16)


def _dot(sums: Sums) -> Any:
    """The product as a tensor function whose innermost loops match the instruction.

    If the last vector is not whole, whole vectors are summed in a buffer and the result is copied from it.
    """
    *sizes, outputs = sums.result
    rows = [f"i{axis}" for axis in range(len(sizes))]
    axes = [*rows, "jo", "ji", *sums.window, "ko", "ki"]
    pairs, vectors = sums.inputs // PAIR, rewriting.whole_vectors(outputs, LANES) // LANES
    extents = [*sizes, vectors, LANES, *sums.kernel[: len(sums.window)], pairs, PAIR]
    kinds = "S" * (len(rows) + 2) + "R" * (len(sums.window) + 2)
    values = [f"v{axis}" for axis in axes]
    place = [f"v{axis}" for axis in sums.window or rows[: len(sums.kernel)]]
    x = f"x[{', '.join(sums.read)}]"
    w = f"w[{', '.join(['vjo', *place, 'vko', 'vji', 'vki'])}]"
    whole = outputs % LANES == 0
    every = rewriting.numbers((*sizes, rewriting.whole_vectors(outputs, LANES)))
    z = f"{'y' if whole else 'z'}[{', '.join(f'v{row}' for row in rows)}, vjo * {LANES} + vji]"
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({rewriting.numbers(sums.data)}), "bfloat16"),
    w: T.Buffer(({rewriting.numbers((vectors, *sums.kernel, pairs, LANES, PAIR))}), "bfloat16"),
    y: T.Buffer(({rewriting.numbers(sums.result)}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {rewriting.OUT_ELEMENTWISE_FUSABLE}}})
    {"" if whole else f'z = T.sblock_alloc_buffer(({every}), "float32")'}
    for {", ".join(axes)} in T.grid({rewriting.numbers(extents)}):
        with T.sblock("dot"):
            {", ".join(values)} = T.axis.remap("{kinds}", [{", ".join(axes)}])
            T.sblock_attr({{"schedule_rule": "{DOT}"}})
            with T.init():
                {z} = T.float32(0)
            {z} = {z} + T.Cast("float32", {x}) * T.Cast("float32", {w})
{"" if whole else _taken(sums.result)}""")


def _taken(result: tuple[int, ...]) -> str:
    axes = [f"i{axis}" for axis in range(len(result))]
    place = ", ".join(f"v{axis}" for axis in axes)
    return f"""
    for {", ".join(axes)} in T.grid({rewriting.numbers(result)}):
        with T.sblock("taken"):
            {place} = T.axis.remap("{"S" * len(axes)}", [{", ".join(axes)}])
            y[{place}] = z[{place}]
"""


def _tile(schedule: Any, block: Any) -> Any:
    """MetaSchedule's tiling around the instruction, with what follows the product fused into one level."""
    return _TILE.apply(rewriting.inline_all_but(schedule, [block]), block)


tvm.register_global_func(RULE, _tile, override=True)
