"""Products of 16-bit factors with float32 sums, and values that are stored in 16 bits for them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax
from tvm.tirx import PrimFunc

from mallorn.graphc.export.output_errors import relative_error
from mallorn.graphc.quant.half_products import HalfProducts, RoundBeforeMoves
from mallorn.workers.tvm.network.graph_recipes import FP16_GPU
from tests.fixtures.cuda import cuda_target
from tests.unit.graphc.networks import assert_same, convolution, fused, network, random, run, weights
from tests.unit.graphc.pass_conformance import PassConformance, graph_text

GPU = cuda_target("sm_90a")
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8}  # largest relative error of one rounding


def product(emit: Any, x: Any) -> Any:
    return relax.op.matmul(x, weights(16, 8))


def constant(value: float) -> Any:
    """A product whose weights have one number that is far larger than the others."""
    array = random(16, 8)
    array[3, 2] = value
    return network(lambda _, x: relax.op.matmul(x, relax.const(array)), (4, 16))


class TestHalfProducts(PassConformance):
    PASS = HalfProducts
    LANES = ()
    RECIPE = FP16_GPU
    TARGET = GPU
    TOLERANCE = 4 * EPSILON["float16"]
    BEFORE = "gv[4, 8] = matmul(x0[4, 16], constant[16, 8])"
    AFTER = """
lv[4, 16] = astype(x0[4, 16])
gv[4, 8] = matmul(lv[4, 16], constant[16, 8])
"""

    def fires(self) -> Any:
        return network(product, (4, 16))

    def leaves(self) -> Mapping[str, Any]:
        return {
            "a weight is over 65,504, the largest float16": constant(1e5),
            "the factors are neither float32 nor float16": network(
                lambda _, x: relax.op.matmul(x, relax.const(np.ones((16, 8), "int32"))),
                (4, 16),
                dtype="int32",
            ),
        }


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize("length", [32, 4096])
def test_sums_of_rounded_factors_are_float32(dtype: str, length: int) -> None:
    """A float16 sum of 4096 ones would stop at 2048."""
    ones = relax.const(np.ones((length, 4), "float32"))
    mod = network(lambda _, x: relax.op.matmul(x, ones), (2, length))
    after = HalfProducts(dtype)(mod)
    assert (run(after, np.ones((2, length), "float32")) == length).all()
    assert_same(after, mod, tolerance=EPSILON[dtype])


CONVOLUTIONS = {
    "plain": ((1, 6, 6, 4), (3, 3, 4, 8), {}),
    "strided": ((1, 7, 7, 4), (3, 3, 4, 8), {"strides": 2, "padding": 1}),
    "grouped": ((1, 6, 6, 8), (3, 3, 2, 8), {"groups": 4}),
    "depthwise": ((1, 6, 6, 8), (3, 3, 1, 8), {"groups": 8, "dilation": 2}),
}


@pytest.mark.parametrize("dtype", EPSILON)
@pytest.mark.parametrize(("data", "kernel", "attrs"), CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_convolutions_keep_their_attributes(
    data: tuple[int, ...], kernel: tuple[int, ...], attrs: dict[str, int], dtype: str
) -> None:
    mod = convolution(data, kernel, **attrs)
    after, report = HalfProducts(dtype).apply(mod)
    assert report.fired == 1
    assert_same(after, mod, tolerance=4 * EPSILON[dtype])


def test_products_of_models_in_float16_get_float32_sums() -> None:
    ones = relax.const(np.ones((4096, 4), "float16"))
    mod = network(lambda _, x: relax.op.matmul(x, ones), (2, 4096), dtype="float16")
    x = np.ones((2, 4096), "float16")
    after = HalfProducts("float16")(mod)
    assert (run(after, x) == 4096).all()
    assert run(after, x).dtype == np.float16
    assert (run(mod, x) == 2048).all()


def residual(emit: Any, x: Any) -> Any:
    first = emit(relax.op.nn.relu(emit(product(emit, x))))
    second = emit(relax.op.matmul(first, weights(8, 8)))
    return relax.op.add(emit(relax.op.nn.relu(second)), first)


def test_a_value_that_a_product_reads_is_stored_in_16_bits_for_a_residual_sum_too() -> None:
    kernels = fused(HalfProducts()(network(residual, (4, 16))), GPU)
    functions = {var.name_hint: f for var, f in kernels.functions.items() if isinstance(f, PrimFunc)}
    assert sorted(functions) == ["cast", "fused_matmul1_relu_cast2_add", "fused_matmul_relu_cast1"]
    (stored, *_) = functions["fused_matmul1_relu_cast2_add"].params
    assert stored.ty.dtype == "float16"


def test_a_sum_of_values_that_no_product_reads_stays_float32() -> None:
    def body(emit: Any, x: Any) -> Any:
        return relax.op.add(emit(relax.op.nn.relu(emit(product(emit, x)))), emit(product(emit, x)))

    after, report = HalfProducts().apply(network(body, (4, 16)))
    assert report.fired == 2
    assert graph_text(after).count("astype") == 1


def moved(dtype: str = "float16") -> Any:
    def body(emit: Any, x: Any) -> Any:
        doubled = emit(relax.op.add(x, x))
        turned = emit(relax.op.permute_dims(emit(relax.op.reshape(doubled, (4, 2, 8))), [1, 0, 2]))
        return relax.op.astype(turned, dtype)

    return network(body, (4, 16))


def with_another_reader() -> Any:
    def body(emit: Any, x: Any) -> Any:
        turned = emit(relax.op.permute_dims(emit(relax.op.add(x, x))))
        return relax.op.add(relax.op.astype(emit(relax.op.astype(turned, "float16")), "float32"), turned)

    return network(body, (4, 16))


class TestRoundBeforeMoves(PassConformance):
    PASS = RoundBeforeMoves
    LANES = ()
    RECIPE = FP16_GPU
    TARGET = GPU
    TOLERANCE = EPSILON["float16"]
    BEFORE = """
lv[4, 16] = add(x0[4, 16], x0[4, 16])
lv1[4, 2, 8] = reshape(lv[4, 16], [4, 2, 8])
lv2[2, 4, 8] = permute_dims(lv1[4, 2, 8])
gv[2, 4, 8] = astype(lv2[2, 4, 8])
"""
    AFTER = """
lv[4, 16] = add(x0[4, 16], x0[4, 16])
lv[4, 16] = astype(lv[4, 16])
lv1[4, 2, 8] = reshape(lv[4, 16], [4, 2, 8])
gv[2, 4, 8] = permute_dims(lv1[4, 2, 8])
"""

    def fires(self) -> Any:
        return moved()

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the cast is not from float32 to 16 bits": moved("float64"),
            "no move that only this cast reads is before it": with_another_reader(),
        }


def test_joined_values_are_rounded_before_they_are_joined() -> None:
    def body(emit: Any, x: Any) -> Any:
        parts = relax.Tuple([emit(relax.op.exp(x)), emit(relax.op.nn.relu(x))])
        return relax.op.astype(emit(relax.op.concat(parts, 1)), "bfloat16")

    mod = network(body, (4, 16))
    after = assert_same(RoundBeforeMoves()(mod), mod, tolerance=0)
    last, *_ = graph_text(after).splitlines()[-1].split("(")
    assert last == "gv[4, 32] = concat"


def test_a_value_over_the_largest_float16_becomes_infinite_and_the_error_too() -> None:
    mod = network(product, (4, 16))
    after, wide = (HalfProducts(dtype)(mod) for dtype in ("float16", "bfloat16"))
    x = random(4, 16)
    x[1, 2] = 1e5
    assert relative_error(run(after, x), run(mod, x)) == np.inf
    assert relative_error(run(wide, x), run(mod, x)) <= EPSILON["bfloat16"]
