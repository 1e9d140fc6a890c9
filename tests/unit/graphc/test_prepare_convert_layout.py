"""Operators that would stop a change of layout are written so that it passes through them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from mallorn.graphc.layout.prepare_convert_layout import PrepareConvertLayout
from mallorn.graphc.phases import CHANNELS_LAST
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import assert_same, network, random, weights
from tests.unit.graphc.pass_conformance import PassConformance

DATA = (1, 4, 6, 7)


def between(operator: Any) -> Any:
    """Two convolutions with an operator between them."""

    def body(emit: Any, x: Any) -> Any:
        first = emit(relax.op.nn.conv2d(x, weights(8, 4, 1, 1)))
        return relax.op.nn.conv2d(emit(operator(first)), weights(4, 8, 1, 1))

    return network(body, DATA)


def transposes(mod: Any) -> int:
    """How many are left of the data, at the ends and between."""
    steps = relax.transform.ConvertLayout(CHANNELS_LAST), relax.transform.FoldConstant()
    return int(tvm.transform.Sequential(steps)(mod)["main"].script().count("permute_dims"))


@pytest.mark.parametrize(
    "operator",
    [
        lambda x: relax.op.nn.leakyrelu(x, 0.1),
        lambda x: relax.op.multiply(x, weights(8, 1, 1)),
        lambda x: relax.op.add(x, weights(6, 7)),
    ],
    ids=["leaky", "channels", "places"],
)
def test_nothing_between_is_transposed(operator: Any) -> None:
    mod = between(operator)
    assert transposes(mod) > 2
    assert transposes(assert_same(PrepareConvertLayout()(mod), mod, tolerance=1e-6)) == 2


def test_a_constant_with_all_axes_keeps_its_type() -> None:
    ones = relax.const(np.ones((4, 1, 1), "int64"), "int64")
    mod = network(lambda _, x: relax.op.add(x, ones), DATA, dtype="int64")
    after, report = PrepareConvertLayout().apply(mod)
    assert (report.fired, after["main"].ret_ty.dtype) == (1, "int64")


def padded(pads: list[int], mode: str = "constant", value: float = 0.0) -> Any:
    """What the importer makes of a padded convolution with padding of its own."""
    axes = len(pads) // 2 - 2
    given = {"w": random(8, 4, *[3] * axes), "p": np.array(pads, "int64"), "v": np.array(value, "float32")}
    nodes = [
        helper.make_node("Pad", ["x", "p", "v"], ["t"], mode=mode),
        helper.make_node("Conv", ["t", "w"], ["y"], kernel_shape=[3] * axes, pads=[1] * 2 * axes),
    ]
    return from_onnx(onnx_network(nodes, {"x": DATA[: axes + 2]}, {"y": [None] * (axes + 2)}, **given))


@pytest.mark.parametrize("pads", [[0, 0, 2, 0, 0, 0], [0, 0, 1, 2, 0, 0, 3, 0]], ids=str)
def test_zeros_around_become_the_convolution_s_own(pads: list[int]) -> None:
    mod = padded(pads)
    after = assert_same(PrepareConvertLayout()(mod), mod, tolerance=1e-6)
    assert "pad," not in after["main"].script()


@pytest.mark.parametrize(
    ("pads", "mode", "value"),
    [
        ([0, 0, 2, 2, 0, 0, 0, 0], "reflect", 0.0),
        ([0, 0, 2, 2, 0, 0, 0, 0], "constant", 1.0),
        ([0, 0, -1, 0, 0, 0, 0, 0], "constant", 0.0),
    ],
    ids=["mirrored", "ones", "cut off"],
)
def test_other_padding_stays(pads: list[int], mode: str, value: float) -> None:
    mod = padded(pads, mode, value)
    after = assert_same(PrepareConvertLayout()(mod), mod, tolerance=0)
    assert "call_tir" in after["main"].script()


class TestPrepareConvertLayout(PassConformance):
    PASS = PrepareConvertLayout
    BEFORE = "gv[1, 4, 6, 7] = multiply(x0[1, 4, 6, 7], constant[4, 1, 1])"
    AFTER = "gv[1, 4, 6, 7] = multiply(x0[1, 4, 6, 7], constant[1, 4, 1, 1])"

    def fires(self) -> Any:
        return network(lambda _, x: relax.op.multiply(x, weights(4, 1, 1)), DATA)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the slope of the LeakyRelu is above one": network(
                lambda _, x: relax.op.nn.leakyrelu(x, 1.5), DATA
            ),
            "the second operand is computed": network(lambda _, x: relax.op.add(x, x), DATA),
            "the input is not an image, or the constant is not per channel": network(
                lambda _, x: relax.op.add(x, weights(7)), DATA[1:]
            ),
            "no tensor function computes the input, or the layout is not ONNX's": network(
                lambda _, x: relax.op.nn.conv2d(x, weights(8, 4, 1, 1)), DATA
            ),
            "the function before the convolution does more than pad": padded(
                [0, 0, 2, 2, 0, 0, 0, 0], "reflect"
            ),
        }
