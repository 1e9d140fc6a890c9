"""Batch norms with constant statistics are a factor and a summand a channel, or in weights before them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tvm import relax

from mallorn.graphc.fold.fold_batch_norm import FoldBatchNorm
from tests.unit.graphc.networks import NHWC, assert_same, network, weights
from tests.unit.graphc.pass_conformance import PassConformance, operators

IMAGE = (1, 6, 6, 8)


def of_channels(seed: int) -> Any:
    """Numbers between one and two, of eight channels."""
    return relax.const(np.random.default_rng(seed).uniform(1, 2, (1, 1, 1, 8)).astype("float32"))


def normed(emit: Any, x: Any) -> Any:
    """As the importer spells a batch norm out."""
    centred = emit(relax.op.subtract(x, of_channels(0)))
    scaled = emit(relax.op.divide(centred, of_channels(1)))
    return relax.op.add(emit(relax.op.multiply(scaled, of_channels(2))), of_channels(3))


def convolved(emit: Any, x: Any) -> Any:
    return emit(relax.op.nn.conv2d(x, weights(3, 3, 8, 8), padding=1, **NHWC))


class TestFoldBatchNorm(PassConformance):
    PASS = FoldBatchNorm
    BEFORE = """
lv[1, 6, 6, 8] = subtract(x0[1, 6, 6, 8], constant[1, 1, 1, 8])
lv1[1, 6, 6, 8] = divide(lv[1, 6, 6, 8], constant[1, 1, 1, 8])
lv2[1, 6, 6, 8] = multiply(lv1[1, 6, 6, 8], constant[1, 1, 1, 8])
gv[1, 6, 6, 8] = add(lv2[1, 6, 6, 8], constant[1, 1, 1, 8])
"""
    AFTER = """
lv[1, 6, 6, 8] = multiply(x0[1, 6, 6, 8], constant[1, 1, 1, 8])
gv[1, 6, 6, 8] = add(lv[1, 6, 6, 8], constant[1, 1, 1, 8])
"""

    def fires(self) -> Any:
        return network(normed, IMAGE)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "an operand is computed, or does not vary by channel only": network(
                lambda _, x: relax.op.multiply(x, weights(1, 6, 1, 8)), IMAGE
            ),
            "the constants are single numbers": network(
                lambda emit, x: relax.op.divide(emit(relax.op.add(x, number(2))), number(3)), IMAGE
            ),
            "TVM fuses one multiplication and one addition anyway": network(
                lambda emit, x: relax.op.add(emit(relax.op.multiply(x, weights(8))), weights(8)), IMAGE
            ),
        }


def number(value: float) -> Any:
    return relax.const(value, "float32")


@pytest.mark.parametrize(
    ("linear", "shape", "name"),
    [
        (convolved, IMAGE, "nn.conv2d"),
        (lambda emit, x: emit(relax.op.matmul(x, weights(4, 8))), (1, 1, 6, 4), "matmul"),
        (
            lambda emit, x: emit(relax.op.nn.conv2d(x, weights(3, 3, 1, 8), groups=8, **NHWC)),
            IMAGE,
            "nn.conv2d",
        ),
    ],
    ids=["a convolution", "a product", "a depthwise convolution"],
)
def test_factors_join_the_weights_of_what_it_alone_reads(linear: Any, shape: Any, name: str) -> None:
    mod = network(lambda emit, x: normed(emit, linear(emit, x)), shape)
    assert operators(assert_same(FoldBatchNorm()(mod), mod)) == [name, "add"]


def test_weights_that_others_read_through_stay_as_they_are() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = convolved(emit, x)
        return relax.op.nn.relu(emit(relax.op.maximum(y, emit(normed(emit, y)))))

    mod = network(body, IMAGE)
    folded = assert_same(FoldBatchNorm()(mod), mod)
    assert operators(folded) == ["nn.conv2d", "multiply", "add", "maximum", "nn.relu"]


def test_constants_in_front_and_numbers_join_the_chain() -> None:
    def body(emit: Any, x: Any) -> Any:
        y = emit(relax.op.subtract(of_channels(0), x))
        return relax.op.multiply(number(3), emit(relax.op.add(number(1), y)))

    mod = network(body, IMAGE)
    assert operators(assert_same(FoldBatchNorm()(mod), mod)) == ["multiply", "add"]


def test_what_changes_no_number_goes() -> None:
    ones, zeros = (relax.const(np.full((8,), value, "float32")) for value in (1, 0))

    def body(emit: Any, x: Any) -> Any:
        same = emit(relax.op.add(emit(relax.op.divide(x, ones)), zeros))
        return relax.op.nn.relu(same)

    folded = relax.transform.CanonicalizeBindings()(FoldBatchNorm()(network(body, IMAGE)))
    assert operators(folded) == ["nn.relu"]


def test_a_division_by_zero_stays_one() -> None:
    zeros = relax.const(np.zeros((8,), "float32"))
    mod = network(lambda emit, x: relax.op.add(emit(relax.op.divide(x, zeros)), of_channels(0)), IMAGE)
    assert operators(FoldBatchNorm()(mod)) == ["divide", "add"]
