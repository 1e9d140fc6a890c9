"""Products in bfloat16 where weights are constants: two of them a lane and instruction, summed in float32.

Data is rounded before a product, and sums stay what they were: float32. Sixteen results are one instruction
(`vdpbf16ps`), so weights are laid out as that reads them: sixteen columns of two rows side by side.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import is_op, rewrite_call, wildcard
from tvm.s_tir import TensorIntrin
from tvm.s_tir.meta_schedule.schedule_rule import AutoInline, MultiLevelTilingWithIntrin, ReuseType
from tvm.target.codegen import target_has_features

LANES, PAIR = 16, 2
DOT = "mallorn_dot_bf16"
RULE = f"s_tir.meta_schedule.cpu.{DOT}"

_LLVM_DOT = "@llvm.x86.avx512bf16.dpbf16ps.512"
# TVM keeps bfloat16 as integers on CPUs; LLVM is told that they are bfloat16.
_LLVM = f"""
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
        T.attr(0, "pragma_import_llvm", {_LLVM!r})
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

# As MetaSchedule has both for CPUs.
_INLINE = AutoInline(
    into_producer=False,
    into_consumer=True,
    inline_const_tensor=True,
    disallow_if_then_else=True,
    require_injective=True,
    require_ordered=True,
    disallow_op=["tirx.exp"],
)
_TILE = MultiLevelTilingWithIntrin(
    DOT,
    structure="SSRSRS",
    max_innermost_factor=64,
    reuse_write=ReuseType(req="may", levels=[1, 2], scope="global"),
)

OUT_ELEMENTWISE_FUSABLE = 4  # TVM's number for operators that take element-wise ones behind them along


@dataclass(frozen=True)
class Sizes:
    """Of a product: data and result with the channels last; a convolution's kernel and strides."""

    data: tuple[int, ...]
    result: tuple[int, ...]
    kernel: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()


def bf16() -> Any:
    """The pass that rewrites every product with constant weights whose sizes fit the instruction."""
    return tvm.transform.module_pass(_rewrite_all, opt_level=0, name="Bf16")


def _rewrite_all(mod: Any, _: Any) -> Any:
    target = tvm.target.Target.current()
    if target is None or not target_has_features("avx512bf16", target):
        raise ValueError("the target's processor has no products of bfloat16 (avx512bf16)")
    builder = relax.BlockBuilder(mod)
    for var, graph in mod.functions.items():
        if isinstance(graph, relax.Function):
            for operator, rewrite in (("relax.matmul", _product), ("relax.nn.conv2d", _convolution)):
                pattern = is_op(operator)(wildcard(), wildcard())
                graph = rewrite_call(pattern, lambda call, _, how=rewrite: how(builder, call), graph)
            builder.update_func(var, graph)
    return builder.get()


def _product(builder: Any, call: Any) -> Any:
    data, weights = call.args
    if not _fits(call) or weights.ty.ndim != 2 or data.ty.ndim < 2:
        return call
    sizes = tuple(map(int, data.ty.shape))
    result = (*sizes[:-1], int(weights.ty.shape[1]))
    return _call(builder, "bf16_matmul", _rounded(data), weights, Sizes(sizes, result))


def _convolution(builder: Any, call: Any) -> Any:
    attrs = call.attrs
    layouts = attrs.data_layout, attrs.kernel_layout, attrs.out_layout
    dense = all(int(number) == 1 for number in (*attrs.dilation, attrs.groups))
    if not _fits(call) or not dense or layouts != ("NHWC", "HWIO", "NHWC"):
        return call
    data, weights = call.args
    top, left, bottom, right = map(int, attrs.padding)
    batch, height, width, channels = map(int, data.ty.shape)
    sizes = batch, height + top + bottom, width + left + right, channels
    rounded = _rounded(data)
    if sizes[1:3] != (height, width):
        rounded = relax.op.nn.pad(rounded, (0, 0, top, bottom, left, right, 0, 0))
    kernel, strides = tuple(map(int, weights.ty.shape))[:2], tuple(map(int, attrs.strides))
    result = tuple(map(int, call.ty.shape))
    return _call(builder, "bf16_conv2d", rounded, weights, Sizes(sizes, result, kernel, strides))


def _fits(call: Any) -> bool:
    """Whether the weights are constant, and inputs and outputs whole pairs and vectors."""
    weights = call.args[1]
    if not isinstance(weights, tvm.ir.GenericConst) or weights.ty.ndim < 2 or call.ty.dtype != "float32":
        return False
    *_, inputs, outputs = map(int, weights.ty.shape)
    return inputs % PAIR == 0 and outputs % LANES == 0


def _rounded(data: Any) -> Any:
    return relax.op.astype(data, "bfloat16")


def _call(builder: Any, name: str, data: Any, weights: Any, sizes: Sizes) -> Any:
    function = builder.add_func(_dot(sizes), name)
    packed = relax.const(_packed(weights.value.numpy()))
    return relax.call_tir(function, [data, packed], relax.TensorType(sizes.result, "float32"))


def _packed(weights: Any) -> Any:
    """[..., inputs, outputs] as [outputs / 16, ..., inputs / 2, 16, 2]."""
    *kernel, inputs, outputs = weights.shape
    split = weights.reshape(*kernel, inputs // PAIR, PAIR, outputs // LANES, LANES)
    return np.ascontiguousarray(np.moveaxis(np.moveaxis(split, -2, 0), -2, -1)).astype(ml_dtypes.bfloat16)


def _dot(sizes: Sizes) -> Any:
    """The product as a tensor function whose innermost loops are the instruction's."""
    rows = [f"i{axis}" for axis in range(len(sizes.result) - 1)]
    window = [f"r{axis}" for axis in range(len(sizes.kernel))]
    axes = [*rows, "jo", "ji", *window, "ko", "ki"]
    inputs, outputs = sizes.data[-1] // PAIR, sizes.result[-1] // LANES
    extents = [*sizes.result[:-1], outputs, LANES, *sizes.kernel, inputs, PAIR]
    kinds = "S" * (len(rows) + 2) + "R" * (len(window) + 2)
    values = [f"v{axis}" for axis in axes]
    read = [f"v{row}" for row in rows]
    for axis, stride in enumerate(sizes.strides):
        read[axis + 1] = f"v{rows[axis + 1]} * {stride} + v{window[axis]}"
    x = f"x[{', '.join(read)}, vko * {PAIR} + vki]"
    w = f"w[{', '.join(['vjo', *(f'v{axis}' for axis in window), 'vko', 'vji', 'vki'])}]"
    y = f"y[{', '.join(f'v{row}' for row in rows)}, vjo * {LANES} + vji]"
    packed = outputs, *sizes.kernel, inputs, LANES, PAIR
    return tvm.script.from_source(f"""
@T.prim_func(private=True, s_tir=True)
def main(
    x: T.Buffer(({_numbers(sizes.data)}), "bfloat16"),
    w: T.Buffer(({_numbers(packed)}), "bfloat16"),
    y: T.Buffer(({_numbers(sizes.result)}), "float32"),
) -> None:
    T.func_attr({{"tirx.noalias": True, "op_pattern": {OUT_ELEMENTWISE_FUSABLE}}})
    for {", ".join(axes)} in T.grid({_numbers(extents)}):
        with T.sblock("dot"):
            {", ".join(values)} = T.axis.remap("{kinds}", [{", ".join(axes)}])
            T.sblock_attr({{"schedule_rule": "{DOT}"}})
            with T.init():
                {y} = T.float32(0)
            {y} = {y} + T.Cast("float32", {x}) * T.Cast("float32", {w})
""")


def _numbers(sizes: Iterable[int]) -> str:
    """As Relax's own functions have them, or nothing is fused with this one."""
    return ", ".join(f"T.int64({size})" for size in sizes)


def _tile(schedule: Any, block: Any) -> Any:
    """MetaSchedule's tiles around the instruction, and what follows the product fused into one of them.

    TVM asks the rule that a block names first, when what follows is in as many blocks as operators still.
    """
    for follower in _followers(schedule, block):
        (schedule,) = _INLINE.apply(schedule, follower)
    return _TILE.apply(schedule, block)


def _followers(schedule: Any, block: Any) -> list[Any]:
    """What reads the block's result, directly or not, in order."""
    found: dict[str, Any] = {}
    pending = [block]
    while pending:
        for consumer in schedule.get_consumers(pending.pop(0)):
            name = schedule.get(consumer).name_hint
            if name not in found:
                found[name] = consumer
                pending.append(consumer)
    return list(found.values())


tvm.register_global_func(RULE, _tile, override=True)
