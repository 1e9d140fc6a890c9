"""Operators that would stop a change of layout are written so that it passes through them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from mallorn.graphc.layout.prepare_convert_layout import PrepareConvertLayout
from mallorn.graphc.phases import CHANNELS_LAST
from tests.unit.graphc.networks import difference, network, random, run, weights
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
    mod, x = between(operator), random(*DATA)
    assert transposes(mod) > 2
    assert transposes(PrepareConvertLayout()(mod)) == 2
    assert difference(run(PrepareConvertLayout()(mod), x), run(mod, x)) <= 1e-6


def test_a_constant_with_all_axes_keeps_its_type() -> None:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(DATA, "int64"))
    with builder.function("main", [x]):
        with builder.dataflow():
            total = builder.emit_output(relax.op.add(x, relax.const(np.ones((4, 1, 1), "int64"), "int64")))
        builder.emit_func_output(total)
    after, report = PrepareConvertLayout().apply(builder.get())
    assert (report.fired, after["main"].ret_ty.dtype) == (1, "int64")


def padded(pads: list[int], mode: str = "constant", value: float = 0.0) -> Any:
    """What the importer makes of a padded convolution with padding of its own."""
    axes = len(pads) // 2 - 2
    given = {"w": random(8, 4, *[3] * axes), "p": np.array(pads, "int64"), "v": np.array(value, "float32")}
    nodes = [
        helper.make_node("Pad", ["x", "p", "v"], ["t"], mode=mode),
        helper.make_node("Conv", ["t", "w"], ["y"], kernel_shape=[3] * axes, pads=[1] * 2 * axes),
    ]
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, DATA[: axes + 2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * (axes + 2))
    initializer = [numpy_helper.from_array(array, name) for name, array in given.items()]
    graph = helper.make_graph(nodes, "g", [source], [result], initializer=initializer)
    return from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9))


@pytest.mark.parametrize("pads", [[0, 0, 2, 0, 0, 0], [0, 0, 1, 2, 0, 0, 3, 0]], ids=str)
def test_zeros_around_become_the_convolution_s_own(pads: list[int]) -> None:
    mod, x = padded(pads), random(*DATA[: len(pads) // 2])
    after = PrepareConvertLayout()(mod)
    assert "pad," not in after["main"].script()
    assert difference(run(after, x), run(mod, x)) <= 1e-6


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
    mod, x = padded(pads, mode, value), random(*DATA)
    after = PrepareConvertLayout()(mod)
    assert "call_tir" in after["main"].script()
    assert difference(run(after, x), run(mod, x)) == 0


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
