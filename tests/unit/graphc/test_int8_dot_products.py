"""Products of bytes: the same sums of integers, by the processor's own instruction."""

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from graphc.quant import int8_dot_products
from mallorn.core.targets import Target
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, NHWC, program, run
from workers.device.target_support import why_not
from workers.tvm.rebuild_schedule import rebuild
from workers.tvm.run_recipe_passes import as_tvm_target
from workers.tvm.sketches import design_space
from workers.tvm.tensor_intrinsics import load_intrinsics

TARGETS = {
    "512 bits": '{"kind":"llvm","mcpu":"znver4","num-cores":1}',
    "256 bits": '{"kind":"llvm","mcpu":"alderlake","num-cores":1}',
    "512 bits, by pairs": '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":1}',
    "256 bits, by pairs": HASWELL,
}
WIDE = TARGETS["512 bits"]
WITHOUT = '{"kind":"llvm","mcpu":"x86-64","num-cores":1}'


def numbers(dtype: str, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    values = np.random.default_rng(sum(shape)).integers(limits.min, limits.max + 1, shape)
    return values.astype(dtype)


def network(
    data: tuple[int, ...], weights: Any, dtype: str = "uint8", zero: int = 0, **convolution: Any
) -> Any:
    """A module of one product, a convolution in NHWC if it has arguments."""

    def body(emit: Any, x: Any) -> Any:
        less = (
            emit(relax.op.subtract(emit(relax.op.astype(x, "int16")), relax.const(zero, "int16")))
            if zero
            else x
        )
        w = relax.const(weights)
        if convolution:
            return relax.op.nn.conv2d(less, w, **NHWC, **convolution, out_dtype="int32")
        return relax.op.matmul(less, w, out_dtype="int32")

    return networks.network(body, data, dtype=dtype)


def rewritten(mod: Any, target: str = WIDE) -> Any | None:
    """The module after the pass; None where the pass left it alone."""
    with as_tvm_target(target):
        return networks.rewritten(int8_dot_products.int8(), mod)


def assert_same(mod: Any, *data: Any) -> None:
    """The pass takes it, and its sums are those of the module as it was."""
    after = rewritten(mod)
    assert after is not None
    np.testing.assert_array_equal(run(after, *data), run(mod, *data))


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 7, -3])
@pytest.mark.parametrize("data", [(8, 8), (1, 36), (2, 3, 16), (5, 10)], ids=str)
def test_a_product_is_that_of_integers(data: tuple[int, ...], dtype: str, zero: int) -> None:
    assert_same(network(data, numbers("int8", data[-1], 32), dtype, zero), numbers(dtype, *data))


@pytest.mark.pairwise
@pytest.mark.parametrize("channels", [1, 3, 4, 6])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 9])
@pytest.mark.parametrize(
    "options",
    [
        {"padding": 0},
        {"padding": (1, 0, 2, 1), "strides": (2, 1)},
        {"padding": 1, "strides": (1, 2), "dilation": (2, 1)},
    ],
    ids=["plain", "padded", "dilated"],
)
def test_a_convolution_is_that_of_integers(channels: int, dtype: str, zero: int, options: Any) -> None:
    data = 2, 9, 8, channels
    assert_same(
        network(data, numbers("int8", 3, 3, channels, 16), dtype, zero, **options), numbers(dtype, *data)
    )


@pytest.mark.pairwise
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [1, 3, 4], ids=lambda size: f"{size} x {size}")
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 3)], ids=str)
def test_planes_are_convolved_as_they_lie(channels: int, size: int, padding: Any) -> None:
    """Quads lie along the rows of a picture's planes; as many channels as fill them are transposed."""

    def body(emit: Any, x: Any) -> Any:
        less = emit(relax.op.subtract(emit(relax.op.astype(x, "int16")), relax.const(9, "int16")))
        last = emit(relax.op.permute_dims(less, [0, 2, 3, 1]))
        weights = relax.const(numbers("int8", size, size, channels, 16))
        options = {"padding": padding, "strides": (1, 2), "dilation": (2, 1)}
        return relax.op.nn.conv2d(last, weights, **NHWC, **options, out_dtype="int32")

    mod = networks.network(body, (2, channels, 9, 8), dtype="uint8")
    assert_same(mod, numbers("uint8", 2, channels, 9, 8))


@pytest.mark.parametrize("outputs", [12, 24, 40])
def test_the_last_vector_of_outputs_need_not_be_whole(outputs: int) -> None:
    assert_same(network((5, 8), numbers("int8", 8, outputs)), numbers("uint8", 5, 8))


def test_a_zero_point_may_be_computed() -> None:
    def body(emit: Any, x: Any) -> Any:
        zero = emit(relax.op.astype(emit(relax.op.min(x)), "int16"))
        less = emit(relax.op.subtract(emit(relax.op.astype(x, "int16")), zero))
        return relax.op.matmul(less, relax.const(numbers("int8", 8, 32)), out_dtype="int32")

    assert_same(networks.network(body, (5, 8), dtype="uint8"), numbers("uint8", 5, 8))


@pytest.mark.parametrize(
    ("data", "kernel", "options"),
    [
        ((4, 8), (8, 10), {}),
        ((4, 8), (2, 8, 16), {}),
        ((1, 9, 9, 3), (3, 3, 3, 16), {"dilation": 2}),
        ((1, 9, 9, 16), (3, 3, 1, 16), {"groups": 16}),
    ],
    ids=["ten columns", "a stack", "odd channels, dilated", "depthwise"],
)
def test_what_does_not_fit_the_instruction_stays_as_it_is(data: Any, kernel: Any, options: Any) -> None:
    assert rewritten(network(data, numbers("int8", *kernel), **options)) is None


def test_weights_that_are_no_bytes_stay_as_they_are() -> None:
    assert rewritten(network((4, 8), np.full((8, 16), 200, "int16"))) is None


def test_a_processor_without_the_instruction_keeps_its_products() -> None:
    assert rewritten(network((8, 8), numbers("int8", 8, 32)), WITHOUT) is None


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_schedules_come_down_to_the_instruction(target: str) -> None:
    load_intrinsics("llvm", "x86_64")
    product = network((8, 64), numbers("int8", 64, 32))
    fused = networks.fused(rewritten(product, target), as_tvm_target(target))
    tir = tvm.ir.save_json(program(fused, "int8_matmul"))
    sketch = next(sketch for sketch in design_space(tir, target) if "auto_tensorize" in sketch.trace)
    decisions = [
        number
        for choice in sketch.choices
        for number in ([choice.extent] + [1] * (choice.width - 1) if choice.extent else choice.values[:1])
    ]
    schedule = rebuild(tir, target, sketch.trace, decisions)
    assert schedule is not None
    assert 'mallorn_dot_int8"' in schedule.mod.script()  # a call of it: LLVM finds vpmaddwd by itself, too
    library = tvm.tirx.build(schedule.mod, target=as_tvm_target(target))
    word = "vpmaddwd" if "by_pairs" in tir else "vpdpbusd"
    assert word in library.inspect_source("asm")
    if why_not(Target(target)) is None:
        data, laid = numbers("uint8", 8, 64), numbers("int8", 2, 16, 16, 4)
        assert_sums(library, data, laid if "dot_int8_16" in tir else laid.reshape(4, 16, 8, 4))


def assert_sums(library: Any, data: Any, laid: Any) -> None:
    """Sums of the largest numbers, too: nothing between is narrower than 32 bits."""
    data, laid = data.copy(), laid.copy()
    data[0], laid[0] = 255, -128
    plain = laid.transpose(1, 3, 0, 2).reshape(64, 32).astype("int32")
    held = [tvm.runtime.tensor(each) for each in (data, laid, np.zeros((8, 32), "int32"))]
    library["main"](*held)
    np.testing.assert_array_equal(held[2].numpy(), data.astype("int32") @ plain)
