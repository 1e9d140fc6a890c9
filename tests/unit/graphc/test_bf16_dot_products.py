"""Products in bfloat16: the same sums of rounded factors, by the processor's own instruction."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

from mallorn.graphc.quant.dot_products import Bf16DotProducts, Fp16DotProducts
from mallorn.workers.tvm.compile.reference_outputs import replace_special_instructions
from mallorn.workers.tvm.network.graph_recipes import BF16, FP16_CPU
from mallorn.workers.tvm.programs.parsed_program_cache import parse_tvm_target
from mallorn.workers.tvm.space.rebuild_schedule import rebuild
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc import networks
from tests.unit.graphc.networks import TILES, difference, product, program, random, run
from tests.unit.graphc.pass_conformance import PassConformance

ABLE = {"kind": "llvm", "mcpu": "znver5", "num-cores": 1}
TARGET = '{"kind":"llvm","mcpu":"znver5","num-cores":1}'


def network(data: tuple[int, ...], weights: Any, **convolution: Any) -> Any:
    return networks.network(lambda _, x: product(x, weights, **convolution), data)


def picture(data: tuple[int, ...], weights: Any, **convolution: Any) -> Any:
    """A module of a convolution of planes that are transposed for it."""

    def body(emit: Any, x: Any) -> Any:
        return product(emit(relax.op.permute_dims(x, [0, 2, 3, 1])), weights, **convolution)

    return networks.network(body, (data[0], data[3], data[1], data[2]))


def rewritten(mod: Any, target: dict[str, Any] = ABLE) -> Any:
    """The module after the pass; None where the pass left it alone."""
    with tvm.target.Target(target):
        return networks.rewritten(Bf16DotProducts(), mod)


def rounded(values: Any) -> Any:
    return values.astype(ml_dtypes.bfloat16).astype("float32")


def assert_rounded(
    data: tuple[int, ...], *kernel: int, make: Any = network, apply: Any = rewritten, **options: Any
) -> Any:
    """The pass takes a product, and its numbers are those of rounded factors; the module after the pass."""
    weights = random(*kernel)
    after = apply(make(data, weights, **options))
    expected = make(data, rounded(weights), **options)
    x = random(*map(int, expected["main"].params[0].ty.shape))
    assert difference(run(replace_special_instructions(after), x), run(expected, rounded(x))) <= 1e-6
    return after


@pytest.mark.parametrize("data", [(8, 6), (1, 34), (2, 3, 16), (1, 2, 5, 4)], ids=str)
def test_a_product_is_that_of_rounded_factors(data: tuple[int, ...]) -> None:
    assert_rounded(data, data[-1], 32)


@pytest.mark.parametrize(
    ("data", "kernel"), [((1, 37, 64), ()), ((1, 9, 9, 64), (3, 3))], ids=["rows", "windows"]
)
def test_sums_that_fill_tiles_are_computed_by_them(data: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    """On any processor: in the loops for those that have none."""
    options = {"padding": 1} if kernel else {}
    apply = partial(rewritten, target=json.loads(TILES))
    after = assert_rounded(data, *kernel, data[-1], 48, apply=apply, **options)
    assert "mallorn_tiles_tdpbf16ps" in after.script()


@pytest.mark.pairwise
@pytest.mark.parametrize("size", [1, 3], ids=lambda size: f"{size} x {size}")
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 1)], ids=str)
def test_a_convolution_is_that_of_rounded_factors(size: int, strides: Any, padding: Any) -> None:
    assert_rounded((2, 7, 6, 4), size, size, 4, 16, strides=strides, padding=padding)


@pytest.mark.pairwise
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [1, 2, 7], ids=lambda size: f"{size} x {size}")
@pytest.mark.parametrize("strides", [(1, 1), (1, 2)], ids=str)
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 3)], ids=str)
def test_odd_channels_of_planes_make_pairs_along_the_window(
    channels: int, size: int, strides: Any, padding: Any
) -> None:
    options = {"strides": strides, "padding": padding}
    assert_rounded((2, 9, 8, channels), size, size, channels, 16, make=picture, **options)


@pytest.mark.parametrize("outputs", [12, 24, 40])
def test_the_last_vector_of_outputs_need_not_be_whole(outputs: int) -> None:
    assert_rounded((5, 8), 8, outputs)


def applied(mod: Any) -> Any:
    with tvm.target.Target(ABLE):
        return Bf16DotProducts()(mod)


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
def test_depthwise_convolutions_read_rounded_data(strides: Any) -> None:
    options = {"strides": strides, "padding": 1, "groups": 16}
    after = assert_rounded((1, 9, 8, 16), 3, 3, 1, 16, apply=applied, **options)
    assert 'R.astype(x0, dtype="bfloat16")' in after.script()


def test_stacks_are_taken_where_data_comes_rounded() -> None:
    weights, x = random(3, 8, 32), random(3, 5, 8)
    factor = relax.const(weights, "bfloat16")
    mod = networks.network(
        lambda _, x: relax.op.matmul(x, factor, out_dtype="float32"), x.shape, dtype="bfloat16"
    )
    found = run(rewritten(mod), x.astype(ml_dtypes.bfloat16))
    assert difference(found, rounded(x) @ rounded(weights)) <= 1e-6


class TestBf16DotProducts(PassConformance):
    PASS = Bf16DotProducts
    TARGET = TARGET
    LANES = (16,)
    RECIPE = BF16
    TOLERANCE = 2**-7  # factors of 8 bits
    BEFORE = "gv[2, 16] = matmul(x0[2, 4], constant[4, 16])"
    AFTER = """
lv[2, 4] = astype(x0[2, 4])
gv[2, 16] = bf16_matmul(lv[2, 4], constant[1, 2, 16, 2])
"""

    def fires(self) -> Any:
        return network((2, 4), random(4, 16))

    def leaves(self) -> Mapping[str, Any]:
        def convolution(channels: int, **options: Any) -> Any:
            return networks.convolution((1, 9, 9, channels), (3, 3, channels, 16), **options)

        return {
            "the outputs fill too small a part of a vector": network((4, 6), random(6, 10)),
            "the number of inputs of the product is odd": network((4, 7), random(7, 16)),
            "the channels are odd, and not transposed from NCHW": convolution(3),
            "the convolution has dilation or groups": convolution(8, dilation=2),
            "the weights are computed, or a vector": network((2, 4, 16), random(16)),
        }


class TestFp16DotProducts(PassConformance):
    PASS = Fp16DotProducts
    TARGET = '{"kind":"llvm","mcpu":"neoverse-v1","mtriple":"aarch64-linux-gnu","num-cores":1}'
    LANES = (4,)
    RECIPE = FP16_CPU
    TOLERANCE = 2**-10  # factors of 11 bits
    BEFORE = "gv[2, 8] = matmul(x0[2, 4], constant[4, 8])"
    AFTER = """
lv[2, 4] = astype(x0[2, 4])
gv[2, 8] = fp16_matmul(lv[2, 4], constant[2, 2, 2, 4])
"""

    def fires(self) -> Any:
        return network((2, 4), random(4, 8))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the outputs fill too small a part of a vector": network((4, 6), random(6, 5)),
            "the number of inputs of the product is odd": network((4, 7), random(7, 16)),
            "a weight is larger than any float16": network((4, 8), np.full((8, 16), 1e5, "float32")),
        }


@pytest.mark.parametrize(
    ("data", "weights"),
    [((2, 4, 16), (2, 16, 16)), ((16,), (16, 16))],
    ids=["weights are a stack", "data is a vector"],
)
def test_products_of_other_than_rows_with_a_matrix_stay_as_they_are(data: Any, weights: Any) -> None:
    assert rewritten(network(data, random(*weights))) is None


def test_depthwise_convolutions_are_rounded_once() -> None:
    mod = networks.convolution((1, 4, 4, 8), (3, 3, 1, 8), groups=8)
    once = applied(mod)
    with tvm.target.Target(ABLE):
        twice, report = Bf16DotProducts().apply(once)
    assert report.left == {"the factors of the convolution are bfloat16 already": 1}
    tvm.ir.assert_structural_equal(twice, once)


def test_a_processor_without_the_instruction_is_told_so() -> None:
    with pytest.raises(ValueError, match="avx512bf16"):
        rewritten(network((8, 6), random(6, 32)), {"kind": "llvm", "mcpu": "haswell", "num-cores": 1})


def fused(*, joined: bool = False) -> Any:
    """The tensor function of a product with a sum and an activation behind it, as a network has them.

    `joined` with a branch that has a sum of its own.
    """

    def body(emit: Any, x: Any, other: Any) -> Any:
        biased = emit(relax.op.add(emit(product(x, random(64, 32))), relax.const(random(32))))
        if joined:
            branch = emit(relax.op.add(other, relax.const(random(32))))
            biased = emit(relax.op.add(branch, biased))
        return relax.op.nn.relu(biased)

    mod = networks.network(body, (8, 64), (8, 32))
    return program(networks.fused(rewritten(mod), ABLE), "fused_bf16_matmul")


@pytest.mark.parametrize(("joined", "inlined"), [(False, 1), (True, 3)], ids=["alone", "joined by a branch"])
def test_what_follows_a_product_is_computed_where_its_tile_is(joined: bool, inlined: int) -> None:
    sketches = design_space(tvm.ir.save_json(fused(joined=joined)), TARGET)
    assert sorted(sketch.trace.count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch.trace.count('"ComputeInline"') == inlined for sketch in sketches)


def test_schedules_come_down_to_the_instruction() -> None:
    tir, target = tvm.ir.save_json(fused()), parse_tvm_target(TARGET)
    (*_, sketch) = design_space(tir, TARGET)
    decisions = [
        number
        for choice in sketch.choices
        for number in ([choice.extent] + [1] * (choice.width - 1) if choice.extent else choice.values[:1])
    ]
    schedule = rebuild(tir, TARGET, sketch.trace, decisions)
    assert schedule is not None
    assert "vdpbf16ps" in tvm.tirx.build(schedule.mod, target=target).inspect_source("asm")
