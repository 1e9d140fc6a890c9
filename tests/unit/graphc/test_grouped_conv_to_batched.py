"""Grouped convolutions: the same numbers with an axis of groups."""

from collections.abc import Mapping
from typing import Any

import pytest
import tvm
from tvm import relax

from mallorn.graphc.conv.grouped_conv_to_batched import GroupedConvToBatched, KeepJoinedGroupsApart
from mallorn.graphc.layout.move_elementwise_before_reshape import MoveElementwiseBeforeReshape
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

CALL = "relax.call_tir"
DATA = (2, 7, 9, 24)


@pytest.mark.pairwise
@pytest.mark.parametrize("count", [3, 4])
@pytest.mark.parametrize("outputs", [1, 3, 12, 20])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", [0, (1, 0, 2, 1)], ids=str)
def test_the_numbers_are_those_of_the_convolution(
    count: int, outputs: int, strides: Any, padding: Any
) -> None:
    kernel = (3, 3, 24 // count, count * outputs)
    mod = convolution(DATA, kernel, groups=count, strides=strides, padding=padding)
    assert_same(rewritten(GroupedConvToBatched(), mod), mod)


@pytest.mark.parametrize("lanes", [4, 8, 16])
def test_dilated_ones_of_a_width_that_cannot_be_tiled_too(lanes: int) -> None:
    mod = convolution((1, 9, 17, 24), (3, 3, 8, 36), groups=3, padding=2, dilation=2)
    assert_same(rewritten(GroupedConvToBatched(lanes), mod), mod)


def test_sequences_too() -> None:
    def body(_: Any, x: Any) -> Any:
        layout = {"data_layout": "NWC", "kernel_layout": "WIO"}
        return relax.op.nn.conv1d(x, weights(3, 4, 24), groups=6, padding=1, **layout)

    mod = network(body, (2, 34, 24))
    assert_same(rewritten(GroupedConvToBatched(), mod), mod)


def computed(_: Any, x: Any, w: Any) -> Any:
    return relax.op.nn.conv2d(x, w, groups=3, **NHWC)


class TestGroupedConvToBatched(PassConformance):
    PASS = GroupedConvToBatched
    BEFORE = "gv[2, 5, 7, 24] = nn.conv2d(x0[2, 7, 9, 24], constant[3, 3, 8, 24])"
    AFTER = """
lv[2, 5, 7, 3, 8] = grouped_conv2d(x0[2, 7, 9, 24], constant[3, 3, 8, 3, 8])
gv[2, 5, 7, 24] = reshape(lv[2, 5, 7, 3, 8], [2, 5, 7, 24])
"""

    def fires(self) -> Any:
        return convolution(DATA, (3, 3, 8, 24), groups=3)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the convolution has one group": convolution(DATA, (1, 1, 24, 32)),
            "the convolution is depthwise": convolution(DATA, (3, 3, 1, 48), groups=24),
            "the channels are not last, or the weights are computed": network(computed, DATA, (3, 3, 8, 24)),
        }


@pytest.mark.parametrize("outputs", [12, 16])
def test_what_follows_is_computed_where_the_tile_is(outputs: int) -> None:
    def body(emit: Any, x: Any) -> Any:
        grouped = emit(relax.op.nn.conv2d(x, weights(3, 3, 8, 3 * outputs), groups=3, padding=1, **NHWC))
        return relax.op.nn.relu(emit(relax.op.add(grouped, weights(3 * outputs))))

    mod = network(body, DATA)
    after = relax.transform.DeadCodeElimination()(MoveElementwiseBeforeReshape()(GroupedConvToBatched()(mod)))
    assert_same(after, mod)
    sketches = design_space(tvm.ir.save_json(program(fused(after), "fused_grouped")), HASWELL)
    assert sorted(sketch.trace.count("ReverseComputeAt") for sketch in sketches) == [0, 1, 1]
    assert all(sketch.trace.count('"ComputeInline"') == 2 for sketch in sketches)


def test_joining_the_groups_again_is_a_view_and_nothing_is_fused_with_it() -> None:
    def body(emit: Any, x: Any) -> Any:
        grouped = emit(relax.op.nn.conv2d(x, weights(3, 3, 8, 48), groups=3, **NHWC))
        return relax.op.permute_dims(emit(relax.op.nn.relu(grouped)), [0, 3, 1, 2])

    mod = network(body, DATA)
    after = relax.transform.DeadCodeElimination()(
        KeepJoinedGroupsApart()(MoveElementwiseBeforeReshape()(GroupedConvToBatched()(mod)))
    )
    lowered = relax.transform.RewriteDataflowReshape()(fused(after))
    bindings = lowered["main"].body.blocks[0].bindings
    assert [binding.value.op.name for binding in bindings] == [CALL, "relax.reshape", CALL]
    assert_same(after, mod)


class TestKeepJoinedGroupsApart(PassConformance):
    PASS = KeepJoinedGroupsApart
    BEFORE = """
lv[2, 5, 7, 3, 8] = grouped_conv2d(x0[2, 7, 9, 24], constant[3, 3, 8, 3, 8])
gv[2, 5, 7, 24] = reshape(lv[2, 5, 7, 3, 8], [2, 5, 7, 24])
"""
    AFTER = """
lv[2, 5, 7, 3, 8] = grouped_conv2d(x0[2, 7, 9, 24], constant[3, 3, 8, 3, 8])
gv[2, 5, 7, 24] = joined(lv[2, 5, 7, 3, 8])
"""

    def fires(self) -> Any:
        return GroupedConvToBatched()(convolution(DATA, (3, 3, 8, 24), groups=3))

    def leaves(self) -> Mapping[str, Any]:
        reshaped = network(lambda _, x: relax.op.reshape(x, (2, 7, 216)), DATA)
        return {"no grouped convolution computes the input": reshaped}
