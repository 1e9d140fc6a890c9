"""Transposed convolutions as plain ones: onnxruntime's numbers, without multiplying the zeros between."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper
from tvm import relax
from tvm.relax.frontend.onnx import from_onnx

from mallorn.graphc.conv.split_conv_transpose_by_phase import SplitConvTransposeByPhase
from mallorn.graphc.layout.move_elementwise_before_reshape import MoveElementwiseBeforeReshape
from mallorn.graphc.phases import CHANNELS_LAST
from mallorn.workers.tvm.space.sketches import design_space
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import (
    HASWELL,
    NHWC,
    assert_same,
    fused,
    network,
    program,
    random,
    run,
    run_onnxruntime,
    weights,
)
from tests.unit.graphc.pass_conformance import PassConformance


@st.composite
def deconvolutions(draw: st.DrawFn) -> ModelProto:
    """A transposed convolution with a bias and an activation."""
    axes = draw(st.integers(1, 2))
    each = {
        name: draw(st.tuples(*[st.integers(*limits)] * axes))
        for name, limits in {"size": (1, 6), "kernel": (1, 5), "stride": (1, 3), "dilation": (1, 2)}.items()
    }
    spans = [(k - 1) * d + 1 for k, d in zip(each["kernel"], each["dilation"], strict=True)]
    pads = [draw(st.integers(0, min(2, (span - 1) // 2))) for span in spans]
    more = [draw(st.integers(0, stride - 1)) for stride in each["stride"]]
    groups, outputs = draw(st.sampled_from([1, 1, 2, 4])), draw(st.sampled_from([1, 3, 16]))
    shape = (draw(st.integers(1, 2)), 4, *each["size"])
    attrs = {
        "strides": each["stride"],
        "dilations": each["dilation"],
        "output_padding": more,
        "group": groups,
    }
    return model(shape, (4, outputs, *each["kernel"]), pads=[*pads, *pads], **attrs)


def model(shape: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> ModelProto:
    bias = random(kernel[1] * attrs.get("group", 1))
    nodes = [
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["t"], kernel_shape=kernel[2:], **attrs),
        helper.make_node("Relu", ["t"], ["y"]),
    ]
    return onnx_network(nodes, {"x": shape}, {"y": [None] * len(shape)}, w=random(*kernel), b=bias)


def rewritten(deconvolution: ModelProto) -> Any:
    steps = relax.transform.ConvertLayout(CHANNELS_LAST), relax.transform.FoldConstant()
    mod = tvm.transform.Sequential(steps)(from_onnx(deconvolution))
    return MoveElementwiseBeforeReshape()(SplitConvTransposeByPhase()(mod))


def functions(mod: Any) -> set[str]:
    return {var.name_hint for var in mod.functions} - {"main"}


@settings(max_examples=25, deadline=None)
@given(deconvolutions())
def test_the_numbers_are_those_of_onnxruntime(deconvolution: ModelProto) -> None:
    sizes = [dim.dim_value for dim in deconvolution.graph.input[0].type.tensor_type.shape.dim]
    x = random(*sizes)
    (expected,) = run_onnxruntime(deconvolution, x)
    ours = run(rewritten(deconvolution), x)
    assert ours.shape == expected.shape
    assert np.abs(ours - expected).max() <= 1e-5 * max(1.0, np.abs(expected).max())


@pytest.mark.parametrize(
    ("kernel", "attrs", "expected"),
    [
        ((8, 16, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, {"transposed_conv2d"}),
        ((8, 16, 16), {"strides": [8], "pads": [4, 4]}, {"transposed_conv2d"}),
        ((64, 16, 3, 3), {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}, {"transposed_sums"}),
        ((8, 3, 4, 4), {"strides": [2, 2], "pads": [1] * 4}, {"transposed_sums"}),
        ((8, 16, 3, 3), {"pads": [1] * 4}, set()),
        ((8, 1, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 8}, {"transposed_conv2d"}),
    ],
    ids=["even", "of one axis", "mostly zeros", "few channels", "no stride", "depthwise"],
)
def test_the_way_is_chosen_by_sizes(
    kernel: tuple[int, ...], attrs: dict[str, Any], expected: set[str]
) -> None:
    mod = rewritten(model((1, kernel[0], *[6] * len(kernel[2:])), kernel, **attrs))
    assert functions(mod) == expected
    assert "transpose(" not in mod["main"].script()


DATA = (1, 2, 3, 8)  # channels last
UPSAMPLING = {"strides": (2, 2), "padding": (1, 1, 1, 1)}


def channels_last(_: Any, x: Any) -> Any:
    return relax.op.nn.conv2d_transpose(x, weights(4, 4, 8, 16), **NHWC, **UPSAMPLING)


def channels_first(emit: Any, x: Any) -> Any:
    kernel = relax.const(np.ascontiguousarray(random(4, 4, 8, 16).transpose(2, 3, 0, 1)))
    first = emit(relax.op.permute_dims(x, [0, 3, 1, 2]))
    result = emit(relax.op.nn.conv2d_transpose(first, kernel, **UPSAMPLING))
    return relax.op.permute_dims(result, [0, 2, 3, 1])


class TestSplitConvTransposeByPhase(PassConformance):
    PASS = SplitConvTransposeByPhase
    BEFORE = "gv[1, 4, 6, 16] = nn.conv2d_transpose(x0[1, 2, 3, 8], constant[4, 4, 8, 16])"
    AFTER = """
lv[1, 4, 5, 8] = nn.pad(x0[1, 2, 3, 8])
lv1[1, 2, 2, 3, 2, 16] = transposed_conv2d(lv[1, 4, 5, 8], constant[2, 2, 2, 2, 8, 16])
gv[1, 4, 6, 16] = reshape(lv1[1, 2, 2, 3, 2, 16], [1, 4, 6, 16])
"""

    def fires(self) -> Any:
        return network(channels_last, DATA)

    def reference(self) -> Any:
        return network(channels_first, DATA)

    def of_a_model(self) -> Any:
        return self.reference()

    def leaves(self) -> Mapping[str, Any]:
        return {"the channels of the transposed convolution are not last": network(channels_first, DATA)}


def test_weights_that_are_computed_leave_it_to_tvm() -> None:
    mod = network(
        lambda _, x, w: relax.op.nn.conv2d_transpose(x, w, strides=(2, 2)), (1, 4, 5, 5), (4, 16, 2, 2)
    )
    after = SplitConvTransposeByPhase()(relax.transform.ConvertLayout(CHANNELS_LAST)(mod))
    assert_same(after, mod, tolerance=1e-6)


def test_what_follows_is_computed_where_the_tile_is() -> None:
    mod = rewritten(model((1, 8, 6, 6), (8, 16, 4, 4), strides=[2, 2], pads=[1] * 4))
    sketches = design_space(tvm.ir.save_json(program(fused(mod), "fused_transposed")), HASWELL)
    assert sorted(sketch.trace.count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch.trace.count('"ComputeInline"') == 1 for sketch in sketches)
