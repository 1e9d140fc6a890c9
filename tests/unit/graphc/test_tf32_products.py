"""Products of factors that are rounded to TF32: which products, to which numbers, on every machine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax, te

from mallorn.graphc.quant.tf32_products import Tf32Products, before_rounding, round_to_tf32
from mallorn.workers.tvm.network.extract_tasks import describe_task
from mallorn.workers.tvm.network.graph_recipes import TF32_GPU
from tests.fixtures.cuda import cuda_target
from tests.unit.graphc.networks import call, fused, network, weights
from tests.unit.graphc.tensor_function_conformance import TensorFunctionConformance
from tests.unit.tvm_space.cuda_programs import convolution, product

EPSILON = 2.0**-11  # largest relative error of one rounding


class TestTf32Products(TensorFunctionConformance):
    PASS = Tf32Products
    WRITES, COUNTS = "T.reinterpret", (0, 6)
    RECIPES = (TF32_GPU,)
    TARGET = cuda_target("sm_90a")
    TOLERANCE = 16 * EPSILON  # beside sums that are near zero

    def fires(self) -> Any:
        return network(lambda _, x: relax.op.matmul(x, weights(16, 8)), (4, 16))

    def leaves(self) -> Mapping[str, Any]:
        return {"the function has no product of float32 matrices": network(depthwise, (1, 8, 6, 6))}


def depthwise(_: Any, x: Any) -> Any:
    return relax.op.nn.conv2d(x, weights(8, 1, 3, 3), groups=8)


OTHERS = {
    "a product with a vector": network(lambda _, x: relax.op.matmul(x, weights(16, 8)), (1, 16)),
    "float16": network(lambda _, x: relax.op.matmul(x, x, out_dtype="float32"), (8, 8), dtype="float16"),
    "a sum": network(lambda _, x: relax.op.sum(x, [-1]), (8, 8)),
    "a sum of squares": network(lambda _, x: relax.op.variance(x, [-1]), (8, 8)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_tensor_cores_would_not_multiply_is_not_rounded(name: str) -> None:
    lowered = fused(OTHERS[name], TestTf32Products.TARGET)
    after, report = Tf32Products().apply(lowered)
    assert report.fired == 0
    tvm.ir.assert_structural_equal(after, lowered)


def rounded(numbers: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The numbers as a processor rounds them by the product's expression."""
    x = te.placeholder(numbers.shape, "float32", "x")
    y = te.compute(x.shape, lambda i: round_to_tf32(x[i]), "y")
    mod = tvm.IRModule({"main": te.create_prim_func([x, y])})
    return call(mod, numbers, np.zeros_like(numbers), target="llvm")


def test_a_number_becomes_the_nearest_of_ten_bits_and_a_tie_the_larger() -> None:
    ulp = np.float32(2.0**-10)
    given = np.array([1, 1 + ulp / 2, 1 + ulp * 0.499, -1 - ulp / 2, 0, -0.0, 3e38], "float32")
    expected = np.array([1, 1 + ulp, 1, -1 - ulp, 0, -0.0, 3e38], "float32")
    result = rounded(given)
    assert np.array_equal(result[:-1], expected[:-1])
    assert np.array_equal(np.signbit(result), np.signbit(given))
    assert abs(result[-1] / given[-1] - 1) <= EPSILON
    assert not (result.view("uint32") & 0x1FFF).any()


def test_infinity_and_every_nan_remain() -> None:
    """The NaN that GPUs compute has all bits of the mantissa."""
    bits = np.array([0x7F800000, 0xFF800000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7FC00000], "uint32")
    assert np.array_equal(rounded(bits.view("float32")).view("uint32"), bits)


def test_only_this_rounding_is_looked_through() -> None:
    x = te.placeholder((4,), "float32", "x")
    tvm.ir.assert_structural_equal(before_rounding(round_to_tf32(x[0])), x[0])
    other = tvm.tirx.Select(x[0] > 0, x[0], x[1])
    assert before_rounding(other) is other


@pytest.mark.parametrize("text", [product(32, 48, 64), convolution(8, 6, 16, 3)])
def test_a_task_is_another_than_in_float32_with_as_many_operations(text: str) -> None:
    mod = tvm.ir.load_json(text)
    wide, narrow = (describe_task(each, "task", 1) for each in (mod, Tf32Products()(mod)))
    assert wide.key != narrow.key
    assert wide.structure != narrow.structure
    for fact in ("op", "flops", "extents", "args"):
        assert getattr(narrow, fact) == getattr(wide, fact)
