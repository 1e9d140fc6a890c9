"""Weights that only meet padding are left out: the same numbers, of fewer products."""

from collections.abc import Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.conv.trim_weights_on_padding import LAYOUTS, TrimWeightsOnPadding
from tests.unit.graphc import networks
from tests.unit.graphc.networks import assert_same
from tests.unit.graphc.pass_conformance import PassConformance


def network(name: str, data: tuple[int, ...], kernel: tuple[int, ...], **attrs: Any) -> Any:
    def body(_: Any, x: Any) -> Any:
        return getattr(relax.op.nn, name)(x, networks.weights(*kernel), **attrs)

    return networks.network(body, data)


def kernel_of(mod: Any) -> tuple[int, ...]:
    """The sizes of the only convolution's weights."""
    found: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and node.op.name in LAYOUTS:
            found.append(tuple(map(int, node.args[1].ty.shape)))

    relax.analysis.post_order_visit(mod["main"], visit)
    return found[0]


@pytest.mark.parametrize(
    ("name", "data", "kernel", "attrs", "left"),
    [
        ("conv2d", (1, 3, 14, 14), (4, 3, 3, 3), {"padding": 24, "dilation": 24}, (1, 1)),
        ("conv2d", (1, 3, 14, 40), (4, 3, 3, 3), {"padding": 24, "dilation": 24}, (1, 3)),
        ("conv2d", (1, 3, 1, 9), (4, 3, 3, 3), {"padding": 1}, (1, 3)),
        ("conv2d", (2, 4, 3, 3), (4, 1, 5, 5), {"padding": 4, "strides": 4, "groups": 4}, (5, 5)),
        ("conv2d", (1, 3, 5, 5), (4, 3, 2, 2), {"padding": (7, 0, 0, 7), "dilation": 7}, (1, 1)),
        ("conv1d", (1, 3, 6), (4, 3, 5), {"padding": 12, "dilation": 6}, (1,)),
        ("conv3d", (1, 2, 1, 6, 6), (4, 2, 3, 3, 3), {"padding": 1}, (1, 3, 3)),
    ],
    ids=str,
)
def test_numbers_stay_the_same(
    name: str, data: tuple[int, ...], kernel: tuple[int, ...], attrs: Any, left: tuple[int, ...]
) -> None:
    mod = network(name, data, kernel, **attrs)
    assert kernel_of(assert_same(TrimWeightsOnPadding()(mod), mod, tolerance=1e-6))[2:] == left


@pytest.mark.parametrize(
    ("data", "attrs"),
    [
        ((1, 3, 14, 14), {"padding": 12, "dilation": 12}),
        ((1, 3, 14, 14), {"padding": 1}),
        ((1, 3, 14, 14), {}),
    ],
    ids=str,
)
def test_weights_that_reach_the_data_stay(data: tuple[int, ...], attrs: Any) -> None:
    mod = network("conv2d", data, (4, 3, 3, 3), **attrs)
    assert kernel_of(TrimWeightsOnPadding()(mod)) == (4, 3, 3, 3)


def computed(_: Any, x: Any, w: Any) -> Any:
    return relax.op.nn.conv2d(x, w, padding=24, dilation=24)


class TestTrimWeightsOnPadding(PassConformance):
    PASS = TrimWeightsOnPadding
    BEFORE = "gv[1, 4, 14, 14] = nn.conv2d(x0[1, 3, 14, 14], constant[4, 3, 3, 3])"
    AFTER = "gv[1, 4, 14, 14] = nn.conv2d(x0[1, 3, 14, 14], constant[4, 3, 1, 1])"

    def fires(self) -> Any:
        return network("conv2d", (1, 3, 14, 14), (4, 3, 3, 3), padding=24, dilation=24)

    def leaves(self) -> Mapping[str, Any]:
        return {
            "no weight is multiplied with padding only": network(
                "conv2d", (1, 3, 14, 14), (4, 3, 3, 3), padding=1
            ),
            "the weights of the convolution are computed": networks.network(
                computed, (1, 3, 14, 14), (4, 3, 3, 3)
            ),
            "the layout of the convolution is not ONNX's (channels first)": network(
                "conv2d", (1, 6, 6, 3), (3, 3, 3, 4), **networks.NHWC
            ),
        }


def test_a_single_tap_lies_nowhere_apart() -> None:
    """So that what takes pointwise convolutions takes it."""
    mod = network("conv2d", (1, 3, 14, 14), (4, 3, 3, 3), padding=24, dilation=24)
    text = TrimWeightsOnPadding()(mod).script()
    assert "dilation=[1, 1]" in text
    assert "padding=[0, 0, 0, 0]" in text
