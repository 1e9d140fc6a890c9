"""Products of bytes: the same sums of integers, by the processor's own instruction."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.quant.dot_products import Int8DotProducts
from mallorn.workers.tvm.compile.reference_outputs import replace_special_instructions
from mallorn.workers.tvm.network.run_recipe_passes import as_tvm_target
from mallorn.workers.tvm.programs.tensor_intrinsics import load_intrinsics
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import HASWELL, TILES, product, program, random_of
from tests.unit.graphc.pass_conformance import PassConformance

TARGETS = {
    "512 bits": '{"kind":"llvm","mcpu":"znver4","num-cores":1}',
    "256 bits": '{"kind":"llvm","mcpu":"alderlake","num-cores":1}',
    "512 bits, by pairs": '{"kind":"llvm","mcpu":"skylake-avx512","num-cores":1}',
    "256 bits, by pairs": HASWELL,
}
WIDE = TARGETS["512 bits"]
WITHOUT = '{"kind":"llvm","mcpu":"x86-64","num-cores":1}'


def network(
    data: tuple[int, ...], weights: Any, dtype: str = "uint8", zero: Any = 0, **convolution: Any
) -> Any:
    """Build a module of one product, a convolution if it has arguments; a zero point of None is computed."""

    def body(emit: Any, x: Any) -> Any:
        wide = emit(relax.op.astype(x, "int16")) if zero != 0 else x
        if zero is None:
            wide = emit(relax.op.subtract(wide, emit(relax.op.astype(emit(relax.op.min(x)), "int16"))))
        elif zero:
            wide = emit(relax.op.subtract(wide, relax.const(zero, "int16")))
        return product(wide, weights, "int32", **convolution)

    return networks.network(body, data, dtype=dtype)


def rewritten(mod: Any, target: str = WIDE) -> Any:
    """The module after the pass; None where the pass left it alone."""
    with as_tvm_target(target):
        return networks.rewritten(Int8DotProducts(), mod)


def assert_same(mod: Any) -> None:
    """The pass takes it, and its sums are those of the module as it was."""
    networks.assert_same(rewritten(mod), mod, tolerance=0)


@pytest.mark.pairwise
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 7, -3])
@pytest.mark.parametrize("data", [(8, 8), (1, 36), (2, 3, 16), (5, 10)], ids=str)
def test_a_product_is_that_of_integers(data: tuple[int, ...], dtype: str, zero: int) -> None:
    assert_same(network(data, random_of("int8", data[-1], 32), dtype, zero))


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
    assert_same(network((2, 9, 8, channels), random_of("int8", 3, 3, channels, 16), dtype, zero, **options))


@pytest.mark.pairwise
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("size", [1, 3, 4], ids=lambda size: f"{size} x {size}")
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 3)], ids=str)
def test_planes_are_convolved_as_they_lie(channels: int, size: int, padding: Any) -> None:
    """Quads lie along the rows of a picture's planes; as many channels as fill them are transposed."""

    def body(emit: Any, x: Any) -> Any:
        less = emit(relax.op.subtract(emit(relax.op.astype(x, "int16")), relax.const(9, "int16")))
        last = emit(relax.op.permute_dims(less, [0, 2, 3, 1]))
        options = {"padding": padding, "strides": (1, 2), "dilation": (2, 1)}
        return product(last, random_of("int8", size, size, channels, 16), "int32", **options)

    assert_same(networks.network(body, (2, channels, 9, 8), dtype="uint8"))


@pytest.mark.parametrize("outputs", [12, 24, 40])
def test_the_last_vector_of_outputs_need_not_be_whole(outputs: int) -> None:
    assert_same(network((5, 8), random_of("int8", 8, outputs)))


@pytest.mark.parametrize("inputs", [8, 10], ids=["quads", "quads that are filled up"])
def test_a_zero_point_may_be_computed(inputs: int) -> None:
    assert_same(network((5, inputs), random_of("int8", inputs, 32), zero=None))


@pytest.mark.pairwise
@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("options", [{"padding": 0}, {"padding": (1, 0, 2, 1), "strides": (2, 1)}], ids=str)
def test_a_convolution_pads_with_a_computed_zero_point(channels: int, dtype: str, options: Any) -> None:
    assert_same(network((2, 9, 8, channels), random_of("int8", 3, 3, channels, 16), dtype, None, **options))


@pytest.mark.pairwise
@pytest.mark.parametrize("shift", [-60, 0, 100])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [0, 7, None])
@pytest.mark.parametrize(
    ("data", "options"),
    [
        ((5, 10), {}),
        ((2, 9, 8, 4), {"padding": (1, 0, 2, 1), "strides": (2, 1)}),
        ((1, 9, 8, 3), {"padding": 1}),
    ],
    ids=["rows", "windows", "few channels"],
)
def test_weights_of_any_256_neighbouring_numbers_are_shifted_into_bytes(
    data: tuple[int, ...], options: Any, zero: int | None, dtype: str, shift: int
) -> None:
    kernel = (3, 3) if options else ()
    weights = random_of("int8", *kernel, data[-1], 32).astype("int16") + shift
    assert_same(network(data, weights, dtype, zero, **options))


@pytest.mark.parametrize("zero", [0, 7])
@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize(
    ("data", "options"),
    [((1, 37, 64), {}), ((1, 9, 9, 64), {"padding": (1, 0, 2, 1), "strides": (2, 1)})],
    ids=["rows", "windows"],
)
def test_sums_that_fill_tiles_are_computed_by_them(
    data: tuple[int, ...], options: Any, dtype: str, zero: int
) -> None:
    """On any processor: in the loops for those that have none."""
    kernel = (3, 3) if options else ()
    mod = network(data, random_of("int8", *kernel, data[-1], 48), dtype, zero, **options)
    after = rewritten(mod, TILES)
    assert "mallorn_tiles_tdpbusd" in after.script()
    networks.assert_same(replace_special_instructions(after), mod, tolerance=0)


@pytest.mark.parametrize(
    ("data", "options"),
    [((4, 64), {}), ((1, 9, 9, 64), {"dilation": 2}), ((1, 9, 9, 4), {})],
    ids=["few rows", "a window with gaps", "few channels"],
)
def test_vectors_sum_up_what_fills_no_tiles(data: tuple[int, ...], options: Any) -> None:
    convolves = len(data) == 4
    weights = random_of("int8", *((3, 3) if convolves else ()), data[-1], 48)
    after = rewritten(network(data, weights, **({"padding": 0} | options if convolves else {})), TILES)
    assert "tiles" not in after.script()
    assert "mallorn_dot_int8_16" in after.script()


class TestInt8DotProducts(PassConformance):
    PASS = Int8DotProducts
    TOLERANCE = 0
    BEFORE = "gv[2, 8] = matmul(x0[2, 8], constant[8, 8])"
    AFTER = """
lv[2, 8] = astype(x0[2, 8])
lv1[2, 8] = add(lv[2, 8], constant[])
lv2[2, 8] = astype(lv1[2, 8])
lv3[2, 8] = int8_matmul(lv2[2, 8], constant[1, 2, 8, 4])
gv[2, 8] = subtract(lv3[2, 8], constant[8])
"""

    def fires(self) -> Any:
        return network((2, 8), random_of("int8", 8, 8), "int8")

    def leaves(self) -> Mapping[str, Any]:
        def convolution(channels: int, *kernel: int, **options: Any) -> Any:
            return network((1, 9, 9, channels), random_of("int8", *kernel, 16), **options)

        wide_weights = np.array([[-200] * 16, [100] * 16] * 4, "int16")
        return {
            "the outputs fill too small a part of a vector": network((4, 8), random_of("int8", 8, 5)),
            "the operator does not multiply rows with a matrix": network((4, 8), random_of("int8", 2, 8, 16)),
            "the weights do not fit into int8": network((4, 8), wide_weights),
            "the data is not int8 or uint8": network((4, 8), random_of("int8", 8, 16), "int16"),
            "the channels are not a multiple of 4, and the convolution is dilated": convolution(
                3, 3, 3, 3, dilation=2
            ),
            "the convolution has groups": convolution(16, 3, 3, 1, groups=16),
            "the sums of the data may not be exact in float32": network(
                (1, 2**16 + 260), np.full((2**16 + 260, 16), 200, "int16")
            ),
            "the result is float32, not int32": networks.network(
                lambda _, x: relax.op.matmul(x, networks.weights(8, 16)), (4, 8)
            ),
        }


def test_a_processor_without_the_instruction_is_the_reason() -> None:
    mod = network((8, 8), random_of("int8", 8, 32))
    with as_tvm_target(WITHOUT):
        after, report = Int8DotProducts().apply(mod)
    assert report.left == {"the target has no instruction for 8-bit dot products": 1}
    tvm.ir.assert_structural_equal(after, mod)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_schedules_come_down_to_the_instruction(target: str) -> None:
    load_intrinsics('{"kind":"llvm","mtriple":"x86_64-linux-gnu"}')
    mod = network((8, 64), random_of("int8", 64, 32))
    fused = networks.fused(rewritten(mod, target), as_tvm_target(target))
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
    if networks.runs(target):
        data, laid = random_of("uint8", 8, 64), random_of("int8", 2, 16, 16, 4)
        assert_sums(library, data, laid if "dot_int8_16" in tir else laid.reshape(4, 16, 8, 4))


def assert_sums(library: Any, data: Any, laid: Any) -> None:
    """Sums of the largest numbers, too: nothing between is narrower than 32 bits."""
    data, laid = data.copy(), laid.copy()
    data[0], laid[0] = 255, -128
    plain = laid.transpose(1, 3, 0, 2).reshape(64, 32).astype("int32")
    held = [tvm.runtime.tensor(each) for each in (data, laid, np.zeros((8, 32), "int32"))]
    library["main"](*held)
    np.testing.assert_array_equal(held[2].numpy(), data.astype("int32") @ plain)
