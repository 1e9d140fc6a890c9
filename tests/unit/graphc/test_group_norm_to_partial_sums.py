"""Group and instance norms of images: onnxruntime's numbers, computed channels-last."""

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

from mallorn.graphc.norm.group_norms import FindGroupNorms, GroupNormToPartialSums
from mallorn.graphc.phases import CHANNELS_LAST
from tests.fixtures.onnx_network import onnx_network
from tests.unit.graphc.networks import assert_same, difference, network, random, run, run_onnxruntime, weights
from tests.unit.graphc.pass_conformance import PassConformance

PARTS = {"norm_parts", "norm_scales", "norm_apply"}


def instance(shape: tuple[int, ...]) -> ModelProto:
    """An instance norm behind a convolution."""
    return model(shape, [helper.make_node("InstanceNormalization", ["c", "s", "b"], ["y"])], shape[1])


def group(shape: tuple[int, ...], groups: int, gain: float = 1.0) -> ModelProto:
    """A group norm behind a convolution, as exporters spell it."""
    nodes = [
        helper.make_node("Reshape", ["c", "rows"], ["r"]),
        helper.make_node("InstanceNormalization", ["r", "one", "zero"], ["n"]),
        helper.make_node("Reshape", ["n", "sizes"], ["y"]),
    ]
    given = {"one": np.full(groups, gain, "float32"), "zero": np.zeros(groups, "float32")}
    sizes = {"rows": np.array([0, groups, -1]), "sizes": np.array(shape)}
    return model(shape, nodes, groups, **given, **sizes)


def model(shape: tuple[int, ...], nodes: list[Any], size: int, **more: Any) -> ModelProto:
    ones = [1] * (len(shape) - 2)
    given = {"w": random(shape[1], shape[1], *ones), "s": random(size), "b": random(size)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=ones), *nodes]
    return onnx_network(nodes, {"x": shape}, {"y": shape}, **given, **more)


def rewritten(normed: ModelProto) -> Any:
    found = FindGroupNorms()(relax.transform.FoldConstant()(from_onnx(normed)))
    last = relax.transform.ConvertLayout(CHANNELS_LAST), relax.transform.FoldConstant()
    return GroupNormToPartialSums()(tvm.transform.Sequential(last)(found))


def functions(mod: Any) -> set[str]:
    return {var.name_hint for var in mod.functions} - {"main"}


@st.composite
def images(draw: st.DrawFn) -> tuple[int, ...]:
    sizes = draw(st.lists(st.integers(1, 9), min_size=1, max_size=2))
    return draw(st.integers(1, 2)), 16 * draw(st.integers(1, 3)), *sizes


@settings(max_examples=15, deadline=None)
@given(images(), st.sampled_from([0, 1, 2, 4, 16]), st.sampled_from([0.0, 100.0]))
def test_the_numbers_are_those_of_onnxruntime(shape: tuple[int, ...], groups: int, mean: float) -> None:
    normed = group(shape, groups) if groups else instance(shape)
    x = random(*shape) + np.float32(mean)
    (expected,) = run_onnxruntime(normed, x)
    mod = rewritten(normed)
    assert functions(mod) == PARTS
    pixels = np.prod(shape[2:])
    # A norm of one pixel divides nothing by nothing but epsilon: what is left is rounding.
    if pixels > 1 or groups not in (0, 16):
        assert difference(run(mod, x), expected) <= 1e-3


def channels_last(shape: tuple[int, ...] = (1, 8, 8, 16), **attrs: Any) -> Any:
    """A module of one group norm."""
    gains = weights(shape[-1]), weights(shape[-1])
    return network(lambda _, x: relax.op.nn.group_norm(x, *gains, 4, 3, [1, 2], **attrs), shape)


class TestGroupNormToPartialSums(PassConformance):
    PASS = GroupNormToPartialSums
    BEFORE = "gv[1, 8, 8, 16] = nn.group_norm(x0[1, 8, 8, 16], constant[16], constant[16])"
    AFTER = """
lv[1, 64, 16] = reshape(x0[1, 8, 8, 16], [1, 64, 16])
lv1[1, 1, 2, 16] = norm_parts(lv[1, 64, 16])
lv2[1, 2, 16] = norm_scales(lv[1, 64, 16], lv1[1, 1, 2, 16], constant[16], constant[16])
gv[1, 8, 8, 16] = norm_apply(x0[1, 8, 8, 16], lv2[1, 2, 16])
"""

    def fires(self) -> Any:
        return channels_last()

    def leaves(self) -> Mapping[str, Any]:
        return {
            "the norm has no gains, or no offsets": channels_last(scale=False),
            "the channels do not fill vectors of": channels_last((1, 8, 8, 12)),
            "the norm is over other axes than an image's height and width": network(
                lambda _, x: relax.op.nn.group_norm(x, weights(16), weights(16), 4, 3, [2]),
                (1, 8, 8, 16),
            ),
        }


def test_a_large_mean_costs_no_digits() -> None:
    normed = channels_last()
    x = random(1, 8, 8, 16)
    far = x + np.float32(1000)
    expected = run(GroupNormToPartialSums()(normed), far - np.float32(1000))
    assert difference(run(GroupNormToPartialSums()(normed), far), expected) <= 1e-3


@pytest.mark.parametrize(
    "normed", [group((1, 16, 4, 4), 4, gain=2.0), instance((1, 12, 4, 4))], ids=["gains", "half a vector"]
)
def test_others_stay_as_they_are(normed: ModelProto) -> None:
    assert functions(rewritten(normed)) == set()


def test_images_that_stay_channels_first_are_spelled_out() -> None:
    mod = network(
        lambda _, x: relax.op.nn.group_norm(x, weights(16), weights(16), 4, 1, [2, 3]), (1, 16, 5, 5)
    )
    after = assert_same(GroupNormToPartialSums()(mod), mod)
    assert "group_norm" not in after["main"].script()
