"""Convolutions with outputs that fill no whole vectors: the same numbers from whole ones."""

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.conv.pad_conv_to_vectors import PadConvToVectors
from mallorn.workers.tvm.space.sketches import design_space
from tests.unit.graphc.networks import (
    HASWELL,
    NHWC,
    assert_same,
    convolution,
    fused,
    network,
    program,
    rewritten,
    weights,
)
from tests.unit.graphc.pass_conformance import PassConformance

DATA = (2, 7, 9, 6)


@pytest.mark.pairwise
@pytest.mark.parametrize("kernel", [1, 3], ids=lambda kernel: f"{kernel} x {kernel}")
@pytest.mark.parametrize("outputs", [24, 28, 40])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 1)], ids=str)
def test_the_numbers_are_those_of_the_convolution(
    kernel: int, outputs: int, strides: Any, padding: Any
) -> None:
    mod = convolution(DATA, (kernel, kernel, 6, outputs), strides=strides, padding=padding)
    assert_same(rewritten(PadConvToVectors(), mod), mod)


class TestPadConvToVectors(PassConformance):
    PASS = PadConvToVectors
    BEFORE = "gv[2, 7, 9, 20] = nn.conv2d(x0[2, 7, 9, 6], constant[1, 1, 6, 20])"
    AFTER = "gv[2, 7, 9, 20] = whole_conv2d(x0[2, 7, 9, 6], constant[1, 1, 6, 24])"

    def fires(self) -> Any:
        return convolution(DATA, (1, 1, 6, 20))

    def leaves(self) -> Mapping[str, Any]:
        computed = network(lambda _, x, w: relax.op.nn.conv2d(x, w, **NHWC), DATA, (1, 1, 6, 20))
        return {
            "the sizes of the convolution fill vectors and tiles already": convolution(DATA, (1, 1, 6, 24)),
            "the convolution has groups": convolution((*DATA[:3], 24), (3, 3, 1, 24), groups=24),
            "the channels are not last, or the weights are computed": computed,
        }


@pytest.mark.parametrize("outputs", [8, 17], ids=["half a vector", "nearly all for nothing"])
def test_outputs_are_not_added_where_most_of_them_are_padding(outputs: int) -> None:
    assert rewritten(PadConvToVectors(16), convolution(DATA, (1, 1, 6, outputs))) is None


@pytest.mark.pairwise
@pytest.mark.parametrize("width", [17, 19, 37])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_width_that_cannot_be_tiled_is_computed_larger(width: int, strides: Any, dilation: int) -> None:
    data = (1, 9, width * strides[1], 4)
    mod = convolution(data, (3, 3, 4, 16), strides=strides, padding=dilation, dilation=dilation)
    assert_same(rewritten(PadConvToVectors(), mod), mod)


@pytest.mark.parametrize("strides", [1, 2])
def test_sequences_too(strides: int) -> None:
    def body(_: Any, x: Any) -> Any:
        layout = {"data_layout": "NWC", "kernel_layout": "WIO"}
        return relax.op.nn.conv1d(x, weights(3, 4, 24), strides=strides, padding=1, **layout)

    mod = network(body, (2, 34 * strides, 4))
    assert_same(rewritten(PadConvToVectors(), mod), mod)


def test_what_follows_is_computed_where_the_tile_is() -> None:
    def body(emit: Any, x: Any) -> Any:
        return relax.op.add(emit(relax.op.nn.conv2d(x, weights(1, 1, 6, 24), **NHWC)), weights(24))

    after = rewritten(PadConvToVectors(), network(body, DATA))
    sketches = design_space(tvm.ir.save_json(program(fused(after), "fused_whole")), HASWELL)
    assert sorted(sketch.trace.count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch.trace.count('"ComputeInline"') == 1 for sketch in sketches)


def test_narrow_vectors_leave_less_to_fill() -> None:
    assert rewritten(PadConvToVectors(8), convolution(DATA, (1, 1, 6, 24))) is None
    mod = convolution(DATA, (3, 3, 6, 20))
    assert_same(rewritten(PadConvToVectors(8), mod), mod)
