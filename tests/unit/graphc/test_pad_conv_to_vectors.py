"""Convolutions with outputs that fill no whole vectors: the same numbers from whole ones."""

from typing import Any

import pytest
import tvm
from tvm import relax

from graphc.conv.pad_conv_to_vectors import vectors
from tests.unit.graphc.networks import (
    HASWELL,
    NHWC,
    convolution,
    difference,
    fused,
    network,
    program,
    random,
    rewritten,
    run,
    weights,
)
from workers.tvm.sketches import design_space

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
    after = rewritten(vectors(), mod)
    assert after is not None
    x = random(*DATA)
    assert difference(run(after, x), run(mod, x)) <= 1e-5


@pytest.mark.parametrize(
    ("channels", "kernel", "attrs"),
    [
        (6, (1, 1, 6, 32), {}),
        (6, (1, 1, 6, 8), {}),
        (6, (1, 1, 6, 17), {}),
        (24, (3, 3, 1, 24), {"groups": 24}),
    ],
    ids=["whole vectors", "half a vector", "nearly all for nothing", "depthwise"],
)
def test_others_stay_as_they_are(channels: int, kernel: tuple[int, ...], attrs: Any) -> None:
    assert rewritten(vectors(), convolution((*DATA[:3], channels), kernel, **attrs)) is None


@pytest.mark.pairwise
@pytest.mark.parametrize("width", [17, 19, 37])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)], ids=str)
@pytest.mark.parametrize("dilation", [1, 2])
def test_a_width_that_cannot_be_tiled_is_computed_larger(width: int, strides: Any, dilation: int) -> None:
    data = (1, 9, width * strides[1], 4)
    mod = convolution(data, (3, 3, 4, 16), strides=strides, padding=dilation, dilation=dilation)
    after, x = rewritten(vectors(), mod), random(*data)
    assert after is not None
    assert difference(run(after, x), run(mod, x)) <= 1e-5


@pytest.mark.parametrize("strides", [1, 2])
def test_sequences_too(strides: int) -> None:
    def body(_: Any, x: Any) -> Any:
        layout = {"data_layout": "NWC", "kernel_layout": "WIO"}
        return relax.op.nn.conv1d(x, weights(3, 4, 24), strides=strides, padding=1, **layout)

    mod, x = network(body, (2, 34 * strides, 4)), random(2, 34 * strides, 4)
    after = rewritten(vectors(), mod)
    assert after is not None
    assert difference(run(after, x), run(mod, x)) <= 1e-5


def test_what_follows_is_computed_where_the_tile_is() -> None:
    def body(emit: Any, x: Any) -> Any:
        return relax.op.add(emit(relax.op.nn.conv2d(x, weights(1, 1, 6, 24), **NHWC)), weights(24))

    after = rewritten(vectors(), network(body, DATA))
    assert after is not None
    sketches = design_space(tvm.ir.save_json(program(fused(after), "fused_whole")), HASWELL)
    assert sorted(sketch.trace.count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch.trace.count('"ComputeInline"') == 1 for sketch in sketches)


def test_narrow_vectors_leave_less_to_fill() -> None:
    assert rewritten(vectors(8), convolution(DATA, (1, 1, 6, 24))) is None
    mod = convolution(DATA, (3, 3, 6, 20))
    after, x = rewritten(vectors(8), mod), random(*DATA)
    assert after is not None
    assert difference(run(after, x), run(mod, x)) <= 1e-5
