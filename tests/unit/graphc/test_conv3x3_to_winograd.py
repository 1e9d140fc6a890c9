"""Convolutions as Winograd's: the same numbers, where it pays."""

from collections.abc import Mapping
from typing import Any

import pytest
from tvm import relax

from mallorn.graphc.conv import conv3x3_to_winograd
from tests.unit.graphc import networks
from tests.unit.graphc.networks import NHWC, assert_same, random
from tests.unit.graphc.pass_conformance import PassConformance

SIZES = (1, 12, 12, 8, 8)  # batch, height, width, channels in and out


def convolution(sizes: tuple[int, ...], padding: int = 1, kernel: int = 3, **attrs: Any) -> Any:
    """A module of one convolution in NHWC."""
    *data, outputs = sizes
    inner = data[-1] // attrs.get("groups", 1)
    return networks.convolution((*data,), (kernel, kernel, inner, outputs), padding=padding, **attrs)


def rewritten(mod: Any, dtype: str = "float32") -> Any:
    """The module after the pass; None where the pass left it alone."""
    return networks.rewritten(conv3x3_to_winograd.Conv3x3ToWinograd(dtype), mod)


class TestConv3x3ToWinograd(PassConformance):
    PASS = conv3x3_to_winograd.Conv3x3ToWinograd
    LANES = ()
    TOLERANCE = 2e-5
    BEFORE = "gv[1, 28, 28, 64] = nn.conv2d(x0[1, 28, 28, 64], constant[3, 3, 64, 64])"
    AFTER = """
lv[1, 30, 30, 64] = nn.pad(x0[1, 28, 28, 64])
lv1[36, 49, 64] = winograd_pack(lv[1, 30, 30, 64])
lv2[36, 49, 64] = matmul(lv1[36, 49, 64], constant[36, 64, 64])
gv[1, 28, 28, 64] = winograd_unpack(lv2[36, 49, 64])
"""

    def fires(self) -> Any:
        return networks.convolution((1, 28, 28, 64), (3, 3, 64, 64), padding=1)

    def leaves(self) -> Mapping[str, Any]:
        computed = networks.network(
            lambda _, x, w: relax.op.nn.conv2d(x, w, **NHWC), (1, 28, 28, 64), (3, 3, 64, 64)
        )
        return {
            "the convolution has strides, dilation or groups": convolution((1, 28, 28, 64, 64), strides=2),
            "the kernel of the convolution is not 3 x 3": convolution((1, 28, 28, 64, 64), kernel=5),
            "the channels are not last, or the weights are computed": computed,
            "copying the tiles would take longer than it saves": convolution(SIZES),
        }


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every convolution that can be rewritten is, small ones too."""
    monkeypatch.setattr(conv3x3_to_winograd, "OPERATIONS_A_BYTE", -1e9)


@pytest.mark.pairwise
@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("form", conv3x3_to_winograd.FORMS, ids=lambda form: f"tiles of {form.tile}")
@pytest.mark.parametrize("sizes", [SIZES, (1, 9, 14, 4, 6), (3, 8, 11, 5, 7), (1, 3, 3, 2, 2)], ids=str)
@pytest.mark.parametrize("padding", [0, 1, 2])
def test_the_numbers_are_those_of_the_convolution(
    sizes: tuple[int, ...], padding: int, form: conv3x3_to_winograd.Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv3x3_to_winograd, "FORMS", (form,))
    mod = convolution(sizes, padding)
    assert_same(rewritten(mod), mod, tolerance=2e-5)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("form", conv3x3_to_winograd.FORMS, ids=lambda form: f"tiles of {form.tile}")
def test_rounded_factors_cost_no_more_than_their_rounding(
    form: conv3x3_to_winograd.Form, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv3x3_to_winograd, "FORMS", (form,))
    mod = convolution((1, 12, 12, 32, 32))
    after = assert_same(rewritten(mod, "bfloat16"), mod, tolerance=1e-2 if form.rounds else 2e-5)
    assert ('"bfloat16"' in after.script()) == form.rounds


@pytest.mark.usefixtures("always")
def test_what_the_instruction_cannot_take_stays_float32() -> None:
    assert '"bfloat16"' not in rewritten(convolution(SIZES), "bfloat16").script()


@pytest.mark.usefixtures("always")
def test_convolutions_of_one_shape_share_their_functions() -> None:
    def body(emit: Any, x: Any) -> Any:
        for factor in range(1, 4):
            kernel = relax.const(factor * random(3, 3, 4, 4))
            x = emit(relax.op.nn.conv2d(x, kernel, padding=1, **NHWC))
        return x

    after = rewritten(networks.network(body, (1, 8, 8, 4)))
    assert len(after.functions) == 3  # the graph, one pack, one unpack


@pytest.mark.parametrize(
    ("height", "channels", "tile", "rounded"),
    [
        (56, 64, 4, 4),
        (28, 128, 4, 2),
        (14, 256, 2, 2),
        (7, 512, 2, None),
        (112, 8, None, None),
        (14, 32, None, None),
    ],
)
def test_it_pays_where_much_is_computed_for_what_is_moved(
    height: int, channels: int, tile: int | None, rounded: int | None
) -> None:
    sizes = 1, height, height, channels, 1, 1, height, height, channels
    for dtype, expected in (("float32", tile), ("bfloat16", rounded)):
        plan = conv3x3_to_winograd.choose_winograd_plan(conv3x3_to_winograd.Shape(*sizes, dtype))
        assert (plan and plan.form.tile) == expected
